# Children that are waited for by their descriptors, in another order than they end in.
import os
read, write = os.pipe()
for turn in range(5):
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            os.write(write, b'%d' % number)
            os._exit(10 * turn + number)
        children.append(child)
    done = b''
    while len(done) < 3:
        done += os.read(read, 3)
    descriptors = [os.pidfd_open(child) for child in children]
    for number in (1, 2, 0):
        found = os.waitid(os.P_PIDFD, descriptors[number], os.WEXITED)
        assert found.si_pid == children[number], (found, children)
        print(turn, number, found.si_status, flush=True)
        try:
            os.waitid(os.P_PIDFD, descriptors[number], os.WEXITED)
        except OSError as error:
            print(error.strerror, flush=True)
    for fd in descriptors:
        os.close(fd)
try:
    os.waitid(os.P_PIDFD, 0, os.WEXITED)
except OSError as error:
    print(error.strerror)
