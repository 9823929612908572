# MariaDB: a data directory, a server with its threads, SQL from several clients, a crash and its recovery, a clean shutdown.
# @root
# @needs mariadbd mariadb-install-db mariadb setpriv
# @timeout 240
# @alone
mkdir data tmp; chown -R 65534:65534 .
as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
as mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal --skip-test-db > install.log 2>&1; echo "install $?"
start() { as mariadbd --no-defaults --datadir="$PWD/data" --tmpdir="$PWD/tmp" --socket="$PWD/socket" --pid-file="$PWD/pid" --skip-networking --innodb-buffer-pool-size=16M --innodb-flush-log-at-trx-commit=1 --sync-binlog=1 --log-bin=bin --server-id=1 > log 2>&1 & server=$!; until mariadb --no-defaults -S socket -u root -e 'select 1' > /dev/null 2>&1; do sleep 0.1; done; }
sql() { mariadb --no-defaults -S socket -u root -N -B "$@"; }
start
sql -e 'create database d; create table d.t(id int auto_increment primary key, who int, v varchar(100)) engine=innodb'
clients=; for who in 1 2 3 4; do for i in $(seq 20); do echo "insert into t(who, v) values($who, repeat('x', $i));"; done | sql d & clients="$clients $!"; done; wait $clients
sql d -e 'select who, count(*), sum(length(v)) from t group by who order by who; start transaction; delete from t; select count(*) from t; rollback; select count(*) from t; alter table t add index(v); check table t'
sql d -e "insert into t(who, v) values(9, 'before the crash')"; kill -9 $(cat pid); wait $server 2>/dev/null
start; sql d -e 'select v from t where who = 9; select count(*) from t; check table t'
kill -TERM $(cat pid); wait $server; echo "shutdown $?"; tail -1 log | sed 's/.*Shutdown complete/Shutdown complete/'; rm -rf data tmp install.log log socket pid
