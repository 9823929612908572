# Redis and its clients over loopback, one after the other and at the same time.
# @needs redis-check-rdb redis-cli
# @timeout 90
# The server and the checker are one program that goes by its name.
ln -s "$(command -v redis-check-rdb)" redis-server
for port in $(shuf -i 20000-30000 -n 20); do
  ./redis-server --port "$port" --bind 127.0.0.1 --dir "$PWD" --save '' --appendonly no --logfile log & server=$!
  until grep -q 'Ready to accept\|Failed listening' log 2>/dev/null; do sleep 0.05; done
  grep -q 'Ready to accept' log && break
  wait $server; rm log
done
cli() { redis-cli -p "$port" "$@"; }
cli set one 1; cli get one; cli rpush list a b c; cli lrange list 0 -1
for n in 1 2 3; do for i in 1 2; do cli incrby total $n > /dev/null; done & all="$all $!"; done; wait $all
cli get total; printf 'set x y\nget x\nincr total\n' | cli
cli shutdown nosave; wait $server; echo "ended $?"; grep -c 'bye bye' log; rm log redis-server
