# Coprocesses and process substitution in a directory in memory.
# @memory
# @never WRONG
coproc { while read -r a b; do echo $((a * b)); done; }
pid=$COPROC_PID
for i in 1 2 3 4 5; do echo "$i $i" >&"${COPROC[1]}"; read -r n <&"${COPROC[0]}"; [ "$n" = $((i * i)) ] || echo WRONG; echo "$n"; done
eval "exec ${COPROC[1]}>&-"; wait "$pid"; echo "status $?"
diff <(seq 5) <(seq 5) && echo same; diff <(seq 3) <(seq 4) > difference; echo "$?"; cat difference
sort -m <(seq 1 2 9) <(seq 2 2 10) | paste -sd, -
seq 100 > numbers; split -l 30 numbers part; cat part* | cmp - numbers && ls
