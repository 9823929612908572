# The position in a file is shared: a loop and the commands in it read the same standard input, subshells write on.
# @never WRONG
seq 20 > in
{ read -r a; (read -r b; echo "$a $b"); head -c 4; read -r c; echo "$c"; } < in
while read -r n; do [ $((n % 5)) = 0 ] && { read -r next; echo "$n skips $next"; }; done < in
{ echo a; (echo b); sh -c 'echo c'; /bin/echo d; } > out; cat out
for i in 1 2 3 4; do (echo "sub $i"); done > out; wc -l < out
exec 3> out; (echo first >&3); echo second >&3; bash -c 'echo third >&3'; exec 3>&-; cat out
