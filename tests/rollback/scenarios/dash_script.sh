# The same under dash: functions, substitutions, traps, here-documents, background, wait.
# @needs dash
# @never WRONG
dash -c '
set -e
f() { echo "f $1"; return 3; }
f a || echo "status $?"
x=$(echo $(echo nested)); echo $x
trap "echo left" EXIT
cat <<END
here $x
END
(exit 5) & wait $! || echo "five $?"
for i in 1 2 3; do echo $i | { read y; echo "got $y"; }; done
n=0; while [ $n -lt 10 ]; do n=$((n + 1)); done; [ $n = 10 ] || echo WRONG
echo a b c | tr " " "\n" | sort -r | tr "\n" " "; echo
exec 3> file; echo three >&3; exec 3>&-; cat file; rm file; [ ! -e file ] || echo WRONG
'
