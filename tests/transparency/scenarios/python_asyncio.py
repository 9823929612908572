# Python asyncio: subprocesses, a TCP and a Unix echo server, signals, timers, executors.
# @timeout 60
import asyncio, os, signal

divisor = int(os.environ.get('ROUNDS_DIVIDED_BY', 1))

async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper()); await writer.drain()
    writer.close()

async def client(connect, n):
    reader, writer = await connect
    answers = []
    for i in range(20 // divisor):
        writer.write(f'{n} line {i}\n'.encode()); await writer.drain()
        answers.append(await reader.readline())
    writer.close()
    return len(answers), answers[-1]

async def child(n):
    process = await asyncio.create_subprocess_exec('sh', '-c', f'read x; echo $x {n}; exit {n}', stdin=-1, stdout=-1)
    out, _ = await process.communicate(b'input\n')
    return out, process.returncode

async def main():
    print(await asyncio.gather(*(child(n) for n in range(10 // divisor))))
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    port = server.sockets[0].getsockname()[1]
    print(await asyncio.gather(*(client(asyncio.open_connection('127.0.0.1', port), n) for n in range(5))))
    unix = await asyncio.start_unix_server(serve, 'socket')
    print(await asyncio.gather(*(client(asyncio.open_unix_connection('socket'), n) for n in range(5))))
    got = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(got.wait(), 5); print('signal')
    def write(n):
        with open(f'file{n}', 'w') as f: f.write(str(n)); f.flush(); os.fsync(f.fileno())
        return n
    print(sum(await asyncio.gather(*(loop.run_in_executor(None, write, n) for n in range(30 // divisor)))))
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.1)
    except asyncio.TimeoutError:
        print('timeout')
    server.close(); unix.close()

asyncio.run(main())
