# Python multiprocessing: pool, queues, pipes, locks, shared values, managers, fork and spawn.
# @timeout 90
import multiprocessing as mp

def square(x):
    return x * x

def producer(queue, start):
    for i in range(start, start + 50):
        queue.put(i)

def add(value, lock):
    for _ in range(100):
        with lock:
            value.value += 1

def talk(connection):
    while (message := connection.recv()) is not None:
        connection.send(message[::-1])

def share(shared):
    shared['from child'] = 17

def main(method):
    context = mp.get_context(method)
    with context.Pool(3) as pool:
        print(method, sum(pool.map(square, range(1000))), pool.apply_async(square, (12,)).get(20))
    queue = context.Queue()
    children = [context.Process(target=producer, args=(queue, n * 50)) for n in range(3)]
    [c.start() for c in children]
    print(sum(queue.get(timeout=20) for _ in range(150)))
    [c.join() for c in children]
    value, lock = context.Value('i', 0), context.Lock()
    children = [context.Process(target=add, args=(value, lock)) for _ in range(3)]
    [c.start() for c in children]
    [c.join() for c in children]
    print(value.value, [c.exitcode for c in children])
    here, there = context.Pipe()
    child = context.Process(target=talk, args=(there,))
    child.start()
    here.send('message'); print(here.recv()); here.send(None); child.join()
    with context.Manager() as manager:
        shared = manager.dict()
        child = context.Process(target=share, args=(shared,))
        child.start(); child.join()
        print(dict(shared))
    child = context.Process(target=exit, args=(7,))
    child.start(); child.join(); print(child.exitcode)

if __name__ == '__main__':
    main('fork')
    main('spawn')
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=100)
    memory.buf[:5] = b'hello'
    again = shared_memory.SharedMemory(memory.name)
    print(bytes(again.buf[:5]))
    again.close()
    memory.close(); memory.unlink()
