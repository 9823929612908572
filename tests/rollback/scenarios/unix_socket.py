# A server and clients over a Unix socket, in processes of their own; the server forks for each client.
# @memory
# @never WRONG Traceback
import os, socket, sys
listener = socket.socket(socket.AF_UNIX); listener.bind('s'); listener.listen(5)
server = os.fork()
if server == 0:
    for i in range(4):
        connection, _ = listener.accept()
        if os.fork() == 0:
            data = b''
            while not data.endswith(b'\n'): data += connection.recv(100)
            connection.sendall(data.upper() * 3)
            os._exit(0)
        connection.close(); os.wait()
    os._exit(5)
listener.close()
for i in range(4):
    client = socket.socket(socket.AF_UNIX); client.connect('s'); client.sendall(b'hello %d\n' % i)
    answer = b''
    while part := client.recv(1000): answer += part
    print(answer.decode().replace('\n', '|'))
    if answer.count(b'HELLO') != 3: print('WRONG')
    client.close()
print(os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]))
os.unlink('s')
