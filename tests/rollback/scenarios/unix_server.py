# socketserver over a Unix socket: one server takes clients one after the other, another forks for each; clients in processes of their own.
# @memory
# @never WRONG Traceback
# @timeout 60
import os, socket, socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            if line == b'end\n': break
            self.wfile.write(b'%d:' % len(line) + line.upper())
class Forking(socketserver.ForkingMixIn, socketserver.UnixStreamServer): pass
def serve(kind, count):
    server = kind('s', Handler)
    pid = os.fork()
    if pid == 0:
        for _ in range(count): server.handle_request()
        if hasattr(server, 'collect_children'): server.collect_children(blocking=True)
        os._exit(7)
    server.server_close()
    return pid
def client(number):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect('s')
        stream = line.makefile('rwb')
        got = []
        for word in (b'one', b'three', b'%d' % number):
            stream.write(word + b'\n'); stream.flush(); got.append(stream.readline())
        stream.write(b'end\n'); stream.flush()
        if stream.read() != b'': return 'WRONG end'
    if got != [b'4:ONE\n', b'6:THREE\n', b'%d:%d\n' % (len(str(number)) + 1, number)]: return f'WRONG {got}'
    return f'client {number} done'
for kind in (socketserver.UnixStreamServer, Forking):
    server = serve(kind, 6)
    for number in (10, 200, 3): print(client(number), flush=True)
    children = []
    for number in (7, 8, 9):
        child = os.fork()
        if child == 0: os._exit(0 if client(number).endswith('done') else 1)
        children.append(child)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]))
    os.unlink('s')
