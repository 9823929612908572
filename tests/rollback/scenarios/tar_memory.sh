# tar, gzip, find, xargs, sort, cp, mv, rm in a directory in memory.
# @memory
# @needs tar gzip find
mkdir -p t/a t/b/c; for i in $(seq 20); do echo "file $i" > "t/a/f$i"; done; ln -s ../a/f1 t/b/link; ln t/a/f2 t/b/c/hard
tar cf - t | gzip -n > t.tar.gz; mkdir x; gzip -dc t.tar.gz | tar xf - -C x; diff -r t x/t && echo equal
find x -type f -print0 | sort -z | xargs -0 -n 5 cat | sort | uniq | wc -l
find x -name 'f1*' | sort | xargs -I{} -P 2 sh -c 'cp {} {}.copy'; find x -name '*.copy' | wc -l
find x -name '*.copy' -exec rm {} +; find x -name '*.copy' | wc -l
mv x y; cp -a y z; rm -r y; find z | sort | tail -3; rm t.tar.gz
