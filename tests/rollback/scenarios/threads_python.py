# Threads: a pool, a queue with locks and conditions, an event, timers, files, children and pipes in several threads.
# @memory
# @never WRONG Traceback
# @timeout 120
import concurrent.futures, os, queue, subprocess, threading
def main():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        print(sum(pool.map(lambda n: n * n, range(50))))
        def keep(n):
            with open(f'file{n}', 'w') as f: f.write('x' * n)
            return os.stat(f'file{n}').st_size
        print(list(pool.map(keep, range(8))))
        print(sorted(pool.map(lambda n: subprocess.run(['sh', '-c', f'exit {n}']).returncode, range(6))))
    work, done = queue.Queue(3), []
    lock = threading.Lock()
    def serve():
        while (item := work.get()) is not None:
            with lock: done.append(item * 2)
    threads = [threading.Thread(target=serve) for _ in range(3)]
    for t in threads: t.start()
    for n in range(40): work.put(n)
    for t in threads: work.put(None)
    for t in threads: t.join()
    print(len(done), sum(done))
    r, w = os.pipe()
    writer = threading.Thread(target=lambda: [os.write(w, b'%d ' % n) for n in range(30)])
    writer.start(); writer.join(); os.close(w)
    print(os.read(r, 1000)); os.close(r)
    event, heard = threading.Event(), []
    def wait(): heard.append(event.wait(60))
    t = threading.Thread(target=wait); t.start(); event.set(); t.join(); print(heard)
    print(sorted(os.listdir('.'))[:3], threading.active_count())
main()
