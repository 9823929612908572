# SQLite in WAL mode under several processes at once, each with connections that stay open: its index is a shared mapping of a file.
# @needs /usr/bin/python3
# @timeout 120
cat > worker.py <<'PY'
import sqlite3, sys, os
rounds = 40 // int(os.environ.get("ROUNDS_DIVIDED_BY", 1))
who = int(sys.argv[1])
db = sqlite3.connect('w.db', timeout=60, isolation_level=None)
db.execute('pragma synchronous=full')
for i in range(rounds):
    db.execute('begin immediate')
    (n,) = db.execute('select value from counter').fetchone()
    db.execute('update counter set value = ?', (n + 1,))
    db.execute('insert into t(who, seen) values(?, ?)', (who, n))
    db.execute('commit')
    if i % 10 == who:
        db.execute('pragma wal_checkpoint(passive)').fetchall()
PY
cat > reader.py <<'PY'
import sqlite3, os
all = 4 * (40 // int(os.environ.get('ROUNDS_DIVIDED_BY', 1)))
db = sqlite3.connect('w.db', timeout=60, isolation_level=None)
last = -1
while last < all:
    db.execute('begin')
    (n,) = db.execute('select value from counter').fetchone()
    (rows,) = db.execute('select count(*) from t').fetchone()
    db.execute('commit')
    assert n == rows and n >= last, (n, rows, last)
    last = n
print('reader saw', last)
PY
python3 - <<'PY'
import sqlite3
db = sqlite3.connect('w.db'); print(db.execute('pragma journal_mode=wal').fetchone()[0])
db.executescript('create table counter(value); insert into counter values(0); create table t(id integer primary key, who, seen unique);')
PY
workers=; for who in 0 1 2 3; do python3 worker.py $who & workers="$workers $!"; done; python3 reader.py; wait $workers
python3 - <<'PY'
import sqlite3
db = sqlite3.connect('w.db')
print(db.execute('pragma integrity_check').fetchone()[0], db.execute('select value from counter').fetchone()[0])
print(db.execute('select who, count(*) from t group by who order by who').fetchall())
print(db.execute('select count(*) from t where seen != id - 1').fetchone()[0])
PY
rm -f w.db w.db-wal w.db-shm worker.py reader.py
