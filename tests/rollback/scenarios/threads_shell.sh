# Programs with several threads in pipelines, in the background and in substitutions of a shell.
# @memory
# @needs xz python3
# @never WRONG Traceback
# @timeout 120
seq 2000 > numbers
sort --parallel=4 -rn numbers | head -2
xz -T2 -c numbers | xz -dc | tail -1
threads='import sys, threading
total = []
def add(line): total.append(int(line))
all = [threading.Thread(target=add, args=(line,)) for line in sys.stdin]
for t in all: t.start()
for t in all: t.join()
print(sum(total)); sys.exit(len(all) % 7)'
seq 20 | python3 -c "$threads"; echo "status $?"
sum=$(seq 10 | python3 -c "$threads" || echo "failed $?"); echo "$sum"
for i in 1 2 3; do (seq $((i * 4)) | python3 -c "$threads" > "out$i"; echo "$?" >> "out$i") & done; wait
cat out1 out2 out3
