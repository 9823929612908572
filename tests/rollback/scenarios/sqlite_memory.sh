# sqlite3 in a directory in memory, and two of them one after the other through a pipe.
# @memory
# @needs sqlite3
# @never WRONG Error
sqlite3 db 'create table t(a integer primary key, b text); begin; '"$(for i in $(seq 50); do echo "insert into t values($i, 'row $i');"; done)"' commit;'
sqlite3 db 'select count(*), sum(a), max(b) from t'
sqlite3 db .dump | sqlite3 copy; sqlite3 copy 'select count(*) from t'; sqlite3 copy 'delete from t where a % 2; vacuum; select count(*) from t; pragma integrity_check'
[ "$(sqlite3 db 'select count(*) from t')" = 50 ] || echo WRONG count; rm db; ls
