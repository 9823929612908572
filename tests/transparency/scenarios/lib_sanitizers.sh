# For the scenarios of sanitizers: runs a program with one and shows status, output, and its report without what differs
# each time.

# Where addresses are drawn from more than 28 bits, some versions of the sanitizers fail now and then, natively as well.
steady() {
    if [ "$(cat /proc/sys/vm/mmap_rnd_bits)" -gt 28 ]; then setarch -R "$@"; else "$@"; fi
}

# report WHAT COMMAND…
report() {
    echo "== $1"
    shift
    steady "$@" 2>report
    echo "status $?"
    # Addresses and process ids, and whether the other thread of a race has ended when it is told of. A part of the
    # shadow shows in addition where the kernel has put the stack.
    sed -E '/^Shadow bytes around/,/^Shadow byte legend/d; s/0x[0-9a-f]+/ADDRESS/g; s/==[0-9]+==/==PID==/g
        s/(pid|tid)[=: ]*[0-9]+/\1/g; s/(tid,) (running|finished)/\1 any/' report
    rm -f report
}

# build COMPILER SANITIZER
build() {
    "$1" -g -O1 -w -fsanitize="$2" -o "program-$2" "$(dirname "$0")/lib_sanitizers.c" -pthread || echo "cannot build"
}

# Each sanitizer that COMPILER has, over programs that are clean and programs that are not.
compiler() {
    local sanitizer mistake mistakes
    for sanitizer in address leak thread undefined $2; do
        build "$1" "$sanitizer"
        case $sanitizer in
        address) mistakes="leak overflow use-after-free stack-overflow null" ;;
        leak) mistakes=leak ;;
        thread) mistakes=race ;;
        undefined) mistakes="integer shift" ;;
        memory) mistakes=uninitialized ;;
        dataflow) mistakes= ;;
        esac
        report "$sanitizer" "./program-$sanitizer"
        for mistake in $mistakes; do report "$sanitizer $mistake" "./program-$sanitizer" "$mistake"; done
        rm -f "program-$sanitizer"
    done
}
