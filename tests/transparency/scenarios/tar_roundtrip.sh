# tar with gzip, bzip2 and xz: links, modes, sparse and long names; extraction, comparison, appending.
# @needs tar gzip bzip2 xz
mkdir -p tree/a/b/c; seq 10000 > tree/a/numbers; ln tree/a/numbers tree/a/hard; ln -s numbers tree/a/soft; chmod 4750 tree/a/b; mkfifo tree/pipe; truncate -s 1M tree/sparse
touch "tree/$(printf 'n%.0s' $(seq 200))"; touch 'tree/with space' $'tree/with\nnewline'
find tree -exec touch -h -d @1000000000 {} +
for kind in z j J; do tar -c${kind}f archive.$kind --sort=name tree; mkdir out.$kind; tar -x${kind}pf archive.$kind -C out.$kind; diff -r --no-dereference tree/a out.$kind/tree/a && echo "$kind same"; done
tar -cf plain.tar -S --sort=name tree; tar -rf plain.tar --transform s/tree/more/ tree/a; tar -tf plain.tar | sort; tar -df plain.tar tree 2>&1 | head
tar -cf - tree | (mkdir piped; cd piped && tar -xf -); find piped | wc -l
