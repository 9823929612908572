# clang's sanitizers, over programs that are clean and programs that are not: the same reports, the same statuses.
# @needs clang llvm-symbolizer setarch
# @timeout 120
# @heavy
. "$(dirname "$0")/lib_sanitizers.sh"
compiler clang 'memory dataflow'
