# rustc's sanitizers, where the toolchain has their libraries.
# @needs cc setarch llvm-symbolizer
# @timeout 120
# @heavy
. "$(dirname "$0")/lib_sanitizers.sh"
libraries=$(dirname "$TEST_RUSTC")/../lib/rustlib/x86_64-unknown-linux-gnu/lib
for each in address:leak,overflow leak:leak thread:race memory:uninitialized realtime: safestack:; do
    sanitizer=${each%:*} source=lib_sanitizers.rs
    case $sanitizer in
    address) short=asan ;;
    leak) short=lsan ;;
    thread) short=tsan ;;
    memory) short=msan source=lib_sanitizers_memory.rs ;;
    realtime) short=rtsan ;;
    safestack) short=safestack ;;
    esac
    if [ -z "$TEST_RUSTC" ] || ! ls "$libraries"/librustc-*_rt.$short.a >/dev/null 2>&1; then
        echo "no $sanitizer"
        continue
    fi
    # The standard library that comes with the compiler is not built for them; their libraries can do with that.
    RUSTC_BOOTSTRAP=1 "$TEST_RUSTC" --edition 2021 -g -Zsanitizer="$sanitizer" \
        -Cunsafe-allow-abi-mismatch=sanitizer -o program "$(dirname "$0")/$source" 2>build.log || tail -3 build.log
    report "$sanitizer" ./program
    for mistake in $(echo "${each#*:}" | tr , ' '); do report "$sanitizer $mistake" ./program "$mistake"; done
    rm -f program build.log
done
