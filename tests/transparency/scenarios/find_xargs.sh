# find and xargs: parallel, batches, null-terminated, -exec with +, failing commands, -delete.
# @needs find xargs
for i in $(seq 100); do mkdir -p "d$((i % 17))"; echo "$i" > "d$((i % 17))/f $i"; done
find . -name 'f *' -print0 | xargs -0 -P4 -n7 cat | sort -n | sha256sum
find . -type f -size -4c -exec grep -l 7 {} + | sort | head -5
seq 100 | xargs -n10 -P3 sh -c 'echo $#' sh | sort | uniq -c
seq 5 | xargs -I{} sh -c 'test {} != 3 || exit 1'; echo "status $?"
echo x | xargs sh -c 'kill -9 $$' 2>/dev/null; echo "status $?"
echo x | xargs no-such-command 2>/dev/null; echo "status $?"
find . -name 'f *5' -delete; find . -type f | wc -l; find . -maxdepth 1 -type d | sort | tail -3
