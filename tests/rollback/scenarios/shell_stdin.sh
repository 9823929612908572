# Standard input is shared by the shell, its children and other programs; what a wrong guess read is read again.
# @stdin one two three four five six seven eight nine ten eleven twelve
# @never WRONG
read -N 4 a; echo "$a"
(read -N 4 b; echo "$b")
read -N 6 c; [ "$c" = "three " ] || echo "WRONG $c"
d=$(head -c 100 | tr a-z A-Z); echo "$d"
read -r e || echo "end $?"
cat
echo "left: $(wc -c)"
