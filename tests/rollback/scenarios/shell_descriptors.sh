# exec with all kinds of redirections; what is open is counted while bash has no process substitution, whose descriptors it closes when it hears of the end.
exec 3<> three; echo one >&3; echo two >&3; exec 3<&-; cat three
exec 4> four 5>&1; echo to four >&4; echo to five >&5; exec 4>&- 5>&-; cat four
exec {fd}< three; read -r x <&$fd; (read -r y <&$fd; echo "sub $y"); read -r z <&$fd; echo "$x/$z $?"; exec {fd}<&-
ls /proc/self/fd > list; wc -l < list; ls /proc/$$/fd > list; wc -l < list
exec 6< <(seq 3); while read -r n <&6; do echo "six $n"; done; exec 6<&-
exec 7> >(cat > seven); echo via cat >&7; exec 7>&-; wait $!; cat seven
{ echo out; echo err >&2; } 2>&1 > both | cat; cat both
exec 8> append; for i in 1 2 3; do echo $i >&8; done; exec 8>&-; exec 8>> append; echo 4 >&8; exec 8>&-; tr '\n' ' ' < append; echo
exec 9<&0 0< three; cat; exec 0<&9 9<&-; cat < /dev/null; echo closed >&9 2>/dev/null || echo "no nine"
