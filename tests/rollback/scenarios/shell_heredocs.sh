# Here-documents and here-strings into pipelines, functions, loops and subshells; markers that only a wrong guess can make it say.
# @never WRONG
f() { while read -r line; do echo "f: $line"; done; }
f <<END
one $((1 + 1)) $(echo three)
two
END
cat <<'END' | tr a-z A-Z | sed 's/^/> /'
not $expanded `at all`
END
for i in 1 2 3; do cat <<END; done
line $i
END
x=$(cat <<END
inside $(echo "a substitution")
END
); [ "$x" = 'inside a substitution' ] || echo WRONG
wc -c <<< "$(seq 2000)"; { cat; echo end; } <<< start
[ -e /etc/passwd ] || echo WRONG; [ -d / ] || echo WRONG; [ -x /bin/sh ] || echo WRONG
