# Python with SQLite: synchronous=FULL in every journal mode, threads, a crash of the process in a transaction.
# @timeout 60
import os, sqlite3, threading
for mode in ('delete', 'truncate', 'persist', 'wal', 'memory'):
    name = f'{mode}.db'
    c = sqlite3.connect(name, isolation_level=None)
    print(c.execute(f'pragma journal_mode={mode}').fetchone())
    c.execute('pragma synchronous=full'); c.execute('create table t(v)')
    for i in range(40): c.execute('insert into t values(?)', (i,))
    if (pid := os.fork()) == 0:
        d = sqlite3.connect(name, isolation_level=None)
        d.execute('begin immediate'); d.execute('delete from t'); os._exit(9)
    os.waitpid(pid, 0)
    print(c.execute('select count(*), sum(v) from t').fetchone(), c.execute('pragma integrity_check').fetchone())
    c.close()
def work(n):
    d = sqlite3.connect('threads.db', timeout=30)
    for i in range(10):
        with d: d.execute('insert into t values(?)', (n,))
    d.close()
d = sqlite3.connect('threads.db'); d.execute('create table t(v)'); d.commit()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(d.execute('select v, count(*) from t group by v').fetchall())
d.close()
for f in os.listdir('.'):
    if '.db' in f: os.unlink(f)
