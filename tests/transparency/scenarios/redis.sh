# Redis with every write synced to its append-only file: many clients, pipelining, a rewrite of the file in a child, SIGTERM, and all of it again.
# @needs redis-check-rdb redis-cli redis-benchmark
# @timeout 120
# The server and the checker are one program that goes by its name.
ln -s "$(command -v redis-check-rdb)" redis-server
start() { ./redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" --appendonly yes --appendfsync always --save '' --logfile log & server=$!; until redis-cli -s socket ping 2>/dev/null | grep -q PONG; do sleep 0.05; done; }
cli() { redis-cli -s socket "$@"; }
start
redis-benchmark -s socket -q -n $((500 / ${ROUNDS_DIVIDED_BY:-1})) -c 10 -t set,incr,lpush 2>&1 |
  tr '\r' '\n' | grep -c 'requests per second'
redis-benchmark -s socket -q -n $((2000 / ${ROUNDS_DIVIDED_BY:-1})) -c 5 -P 16 -t set 2>&1 |
  tr '\r' '\n' | grep -c 'requests per second'
for i in $(seq $((100 / ${ROUNDS_DIVIDED_BY:-1}))); do echo "set key:$i value:$i"; done | cli --pipe | tail -1
cli get key:17; cli incrby total 7; cli incrby total 8; cli rpush list a b c; cli lrange list 0 -1
cli bgrewriteaof; while cli info persistence | grep -q 'aof_rewrite_in_progress:1\|aof_rewrite_scheduled:1'; do sleep 0.05; done
cli info persistence | grep -o 'aof_last_bgrewrite_status:[a-z]*'
cli subscribe news > news & sub=$!; until [ "$(cli publish news hello)" = 1 ]; do sleep 0.05; done; until grep -q hello news; do sleep 0.05; done; kill $sub; wait $sub 2>/dev/null; grep -c hello news
cli set last before-kill; kill -9 $server; wait $server 2>/dev/null; echo "killed $?"
start; cli get last; cli get total; cli dbsize
kill -TERM $server; wait $server; echo "ended $?"; grep -c 'bye bye' log; rm -rf appendonlydir log news socket redis-server
