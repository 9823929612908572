# A tree of processes that talk through pipes: each node adds what its children say.
# @never WRONG
node() {
    [ "$1" = 0 ] && { echo 1; return; }
    { node $(($1 - 1)) & node $(($1 - 1)) & wait; } | { read -r a; read -r b; echo $((a + b + 1)); }
}
result=$(node 3); echo "$result"; [ "$result" = 15 ] || echo WRONG tree
seq 50 | while read -r n; do echo $((n * n)); done | (while read -r n; do s=$((s + n)); done; echo "$s")
echo start | (read -r x; echo "$x" 1 | (read -r x; echo "$x" 2 | (read -r x; echo "$x" 3; exit 3); echo "s $?"; exit 2); echo "s $?")
yes | head -100 | sort | uniq -c | awk '{ print $1 }'; echo "${PIPESTATUS[*]}"
