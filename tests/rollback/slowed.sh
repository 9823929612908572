#!/bin/bash
# speculator with a slow supervisor: strace (which must be installed) makes each of its ptrace calls DELAY us longer.
# What is told of the tracees then comes in another order. $SPECULATOR is the program, by default the release build.
#
#   SPECULATOR_PREFIX="$PWD/tests/rollback/slowed.sh run --" cargo xtask equivalence --quick --seeds 1 --programs 0
#
# A scenario takes up to a hundred times as long.
speculator=${SPECULATOR:-$(dirname "$0")/../../target/release/speculator}
own=$$
(
    (
        exec < /dev/null > /dev/null 2>&1
        # The supervisor is the child of what this shell is about to be.
        while [ -d "/proc/$own" ]; do
            supervisor=$(pgrep -P "$own" -x speculator | head -1)
            if [ -n "$supervisor" ]; then
                exec setsid strace -qq -o /dev/null -e trace=ptrace -e "inject=ptrace:delay_exit=${DELAY:-200}" \
                    -p "$supervisor"
            fi
            sleep 0.002
        done
    ) &
)
exec "$speculator" "$@"
