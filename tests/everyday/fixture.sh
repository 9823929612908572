# Makes, in the empty directory where it runs, what the commands work on. Everything in it is the same each time.
set -eu
export TZ=UTC LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
mkdir text tree tree/a tree/b tree/b/deep c py web
seq 1 2000 > text/numbers
for word in pear apple fig cherry banana apple date fig; do echo "$word $(printf %s "$word" | wc -c)"; done > text/words
printf 'id,name,value\n1,one,10\n2,two,20\n3,three,30\n' > text/table.csv
printf '{"b": [1, 2, {"c": null}], "a": "text"}\n' > text/data.json
sed 's/apple/APPLE/' text/words > text/words.new
for folder in tree/a tree/b tree/b/deep; do for i in 1 2 3; do echo "$folder $i" > "$folder/file$i"; done; done
ln -s ../text/words tree/link
ln tree/a/file1 tree/hard
printf '#include <stdio.h>\n#include "part.h"\nint main(void) { printf("%%d\\n", part(20)); return 0; }\n' > c/main.c
printf 'int part(int);\n' > c/part.h
printf '#include "part.h"\nint part(int n) { return n < 2 ? n : part(n - 1) + part(n - 2); }\n' > c/part.c
printf 'CFLAGS = -O1\nprog: main.o part.o\n\t$(CC) -o $@ $^\nmain.o part.o: part.h\nclean:\n\trm -f prog *.o\n' > c/Makefile
printf 'cmake_minimum_required(VERSION 3.13)\nproject(p C)\nadd_executable(prog main.c part.c)\n' > c/CMakeLists.txt
printf 'import sys\nfrom collections import Counter\nprint(Counter(sys.stdin.read().split()).most_common(3))\n' > py/count.py
printf 'def double(n):\n    """\n    >>> double(2)\n    4\n    """\n    return 2 * n\n' > py/lib.py
printf 'import unittest, lib\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(lib.double(3), 6)\n' > py/test_lib.py
printf '<h1>hello</h1>\n' > web/index.html
cat > everyday_server.py <<'X'
import http.server, sys
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
s = http.server.HTTPServer(('127.0.0.1', 0), Quiet)
print(s.server_port, flush=True)
s.serve_forever()
X
cat > postgres.sh <<'X'
# A server for one user that is not root, which it refuses; its files and its socket are in pg.
PG=/usr/lib/postgresql/15/bin AS='setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/'
install -d -o 65534 -g 65534 -m 700 pg
$AS $PG/initdb -D pg/data -A trust -U nobody -N > /dev/null
$AS $PG/pg_ctl -s -w -D pg/data -l pg/log -o "-c listen_addresses= -c unix_socket_directories=$PWD/pg -c fsync=off" start
X
tar -cf tree.tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner tree
gzip -n9 < text/numbers > text/numbers.gz
git init -q -b main repo
cd repo
for i in 1 2 3; do seq 1 $((i * 10)) > "f$i"; git add .; git commit -qm "commit $i"; done
git branch other HEAD~1
git tag v1 HEAD~2
git repack -adq
cd ..
git clone -q --bare repo bare.git
find . -exec touch -h -d '2024-01-01T00:00:00Z' {} +
