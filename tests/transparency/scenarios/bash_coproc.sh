# bash: a coprocess is talked to in both directions, then ends; a second, named one.
coproc { while read -r line; do echo "got $line"; done; echo done; }
for i in 1 2 3; do echo "$i" >&"${COPROC[1]}"; read -r answer <&"${COPROC[0]}"; echo "$answer"; done
eval "exec ${COPROC[1]}>&-"; read -r answer <&"${COPROC[0]}"; echo "$answer"; wait "$COPROC_PID"; echo "status $?"
coproc ADD { sed -u 's/ /+/'; }
for i in 10 20; do echo "$i $i" >&"${ADD[1]}"; read -r sum <&"${ADD[0]}"; echo "$sum"; done; kill "$ADD_PID"; wait "$ADD_PID"; echo "status $?"
