# subprocess pipelines, multiprocessing (fork and spawn), asyncio with processes, signals, os.pipe.
# @timeout 60
# @never WRONG Traceback
import asyncio, multiprocessing, os, signal, subprocess, sys
def square(x): return x * x
def main():
    a = subprocess.Popen(['seq', '100'], stdout=subprocess.PIPE)
    b = subprocess.Popen(['grep', '-c', '1'], stdin=a.stdout, stdout=subprocess.PIPE); a.stdout.close()
    print(b.communicate()[0], a.wait(), b.returncode)
    with multiprocessing.get_context('fork').Pool(2) as pool: print(sum(pool.map(square, range(20))))
    async def run():
        p = await asyncio.create_subprocess_exec('cat', stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        out, _ = await p.communicate(b'async'); print(out, p.returncode)
    asyncio.run(run())
    p = subprocess.Popen(['sleep', '100']); p.send_signal(signal.SIGTERM); print(p.wait())
    try: subprocess.run(['sh', '-c', 'exit 4'], check=True)
    except subprocess.CalledProcessError as e: print(e.returncode)
    r, w = os.pipe(); os.write(w, b'x' * 60000); print(len(os.read(r, 60000)))
    q = multiprocessing.get_context('fork').Queue(); t = multiprocessing.get_context('fork').Process(target=q.put, args=('queued',)); t.start(); print(q.get()); t.join(); print(t.exitcode)
if __name__ == '__main__': main()
