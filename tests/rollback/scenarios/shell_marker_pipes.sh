# Every wrong read, write or close in a pipeline makes it say so.
# @never WRONG
for i in $(seq $((12 / ${ROUNDS_DIVIDED_BY:-1}))); do
    n=$(seq 500 | cat | wc -l); [ "$n" = 500 ] || echo "WRONG count $n"
    echo "word $i" | { read -r a b; [ "$b" = "$i" ] || echo "WRONG word $b"; }
    (exit $i); [ $? = "$i" ] || echo WRONG status
    printf 'a\nb\n' | grep -q b || echo WRONG grep
done
echo "${PIPESTATUS[*]} end"
