# bash: process substitution both ways, command substitution nested, here-documents and here-strings, descriptors.
diff <(seq 10) <(seq 2 11); paste <(seq 3) <(seq 4 6) <(echo a; echo b; echo c)
seq 1000 | tee >(wc -l > lines) >(md5sum > sum) > copy; sleep 0.3; cat lines sum
while read -r a; do ((n += a)); done < <(seq 100); echo $n
x=$(echo "$(echo "$(echo deep)")"); echo "$x"
cat <<'END' | tr a-z A-Z
here $document `not` expanded
END
cat <<END
here $x $(echo expanded)
END
cat <<< "string $x"; big=$(seq 20000); wc -c <<< "$big"
exec 7> seven; echo to seven >&7; exec 7>&-; cat seven; exec {fd}< seven; read -r line <&$fd; echo "$line"; exec {fd}<&-
{ echo out; echo err >&2; } 2>&1 | sort; echo swapped 3>&1 1>&2 2>&3
exec 8<> both; echo readwrite >&8; cat both; (exec 9< both; cat <&9)
cat /dev/fd/3 3<<< "by /dev/fd"; printf 'a\0b' | { read -r -d '' v; echo "$v"; }
mkfifo f; (echo through fifo > f) & cat f; wait
