# PostgreSQL as it is run: initdb, start, many clients at once, a crash and its recovery, a clean stop. As an ordinary user: it refuses root.
# @root
# @needs /usr/lib/postgresql/15/bin/postgres setpriv
# @timeout 180
# @alone
PATH=/usr/lib/postgresql/15/bin:$PATH; export PGHOST=$PWD/sockets PGUSER=tester PGDATABASE=postgres
mkdir data sockets; chown -R 65534:65534 . ; chmod 700 data
as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
start() { as pg_ctl -D data -l log -w -t 60 -o "-c listen_addresses= -k $PGHOST -c shared_buffers=8MB -c max_connections=20" start > /dev/null; echo "start $?"; }
as initdb -D data -U tester --auth=trust --no-instructions > initdb.log; echo "initdb $?"; grep -c ' ok$' initdb.log; grep fixing initdb.log
start
pgbench -i -s 1 -q 2>&1 | grep -c 'done in'
pgbench -c 4 -j 2 -t 25 2>/dev/null | grep -E 'processed|failed' 
psql -Atc 'select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts) from pgbench_history'
psql -Atq <<'SQL' | sed 's/PID [0-9]*/PID N/'
create table words(id serial primary key, word text unique);
insert into words(word) select 'word ' || i from generate_series(1, 500) i;
begin; delete from words; select count(*) from words; rollback;
select count(*), max(length(word)) from words;
copy (select word from words where id % 100 = 0 order by id) to stdout;
vacuum full words; checkpoint;
listen news; notify news, 'here';
SQL
psql -Atc 'select pg_sleep(60)' > /dev/null 2> slow & slow=$!
until [ "$(psql -Atc "select count(*) from pg_stat_activity where query like 'select pg_sleep%'")" = 1 ]; do sleep 0.1; done
psql -Atc "select pg_cancel_backend(pid) from pg_stat_activity where query like 'select pg_sleep%'"; wait $slow; echo "cancelled $?"; grep -c 'canceling statement' slow
as pg_ctl -D data -m immediate stop > /dev/null; echo "crash $?"
start; grep -c 'automatic recovery in progress' log
psql -Atc 'select count(*) from words; select count(*) from pgbench_history'
as pg_ctl -D data -m fast -w stop > /dev/null; echo "stop $?"; tail -1 log | sed 's/.*LOG/LOG/'
pg_controldata data | grep 'cluster state'; rm -rf data sockets log initdb.log slow
