# A process that opens files for others and passes them on, as multiprocessing's forkserver does; pipes and sockets are passed through two hands.
# @memory
# @never WRONG Traceback
import os, socket
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
opener = os.fork()
if opener == 0:
    here.close()
    while True:
        request, fds, _, _ = socket.recv_fds(there, 100, 4)
        if not request: os._exit(6)
        name = request.decode()
        if fds:
            os.write(fds[0], b'through ' + request); os.close(fds[0]); there.sendall(b'done')
        else:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC); socket.send_fds(there, [b'opened'], [fd]); os.close(fd)
there.close()
def open_there(name):
    here.sendall(name.encode())
    answer, fds, _, _ = socket.recv_fds(here, 100, 4)
    if answer != b'opened' or len(fds) != 1: print('WRONG', answer, fds)
    return fds[0]
for number in range(4):
    fd = open_there(f'file{number}')
    os.write(fd, b'contents %d\n' % number * 3); os.lseek(fd, 0, 0)
    print(os.read(fd, 100)); os.close(fd)
    reader, writer = os.pipe()
    socket.send_fds(here, [b'pipe%d' % number], [writer]); os.close(writer)
    if here.recv(10) != b'done': print('WRONG answer')
    print(os.read(reader, 100), os.read(reader, 100)); os.close(reader)
    a, b = socket.socketpair()
    middle, end = socket.socketpair()
    child = os.fork()
    if child == 0:
        middle.close(); a.close(); b.close()
        _, fds, _, _ = socket.recv_fds(end, 10, 4)
        line = socket.socket(fileno=fds[0]); line.sendall(b'from child %d' % number); os._exit(number)
    end.close(); socket.send_fds(middle, [b'x'], [b.fileno()]); b.close()
    got = b''
    while part := a.recv(100): got += part
    print(got, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])); a.close(); middle.close()
here.close()
print(os.waitstatus_to_exitcode(os.waitpid(opener, 0)[1]), sorted(os.listdir('.')))
