# The sqlite3 shell: transactions, WAL, rollback, integrity check, backup, two at once, synchronous=FULL.
# @needs sqlite3
# @timeout 60
# @ignore *-shm *-wal
sqlite3 a.db 'pragma synchronous=full; create table t(id integer primary key, v text);' 
for i in $(seq 30); do echo "insert into t(v) values('row $i');"; done | sqlite3 a.db
sqlite3 a.db 'begin; delete from t where id > 10; select count(*) from t; rollback; select count(*), max(v) from t; pragma integrity_check;'
sqlite3 a.db 'pragma journal_mode=wal;'
insert() {
    for i in $(seq $((20 / ${ROUNDS_DIVIDED_BY:-1}))); do
        sqlite3 a.db "pragma busy_timeout=10000; insert into t(v) values('$1');" > /dev/null
    done
}
insert left & insert right
wait
sqlite3 a.db "select v, count(*) from t where id > 30 group by v;" '.backup b.db'; sqlite3 b.db 'pragma journal_mode=delete; select count(*) from t; vacuum;'
sqlite3 a.db .dump | grep -v left | grep -vc right; sqlite3 a.db 'syntax error' 2>/dev/null; echo "status $?"; sqlite3 a.db 'pragma journal_mode=delete;'; rm a.db b.db
