# An HTTP server without threads over loopback, clients in processes of their own, one after the other and at the same time.
# @never WRONG Traceback
# @timeout 60
import http.client, http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words): pass
    def answer(self, body):
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_GET(self): self.answer(self.path.encode() * 3000)
    def do_POST(self): self.answer(b'took %d' % len(self.rfile.read(int(self.headers['Content-Length']))))
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
port = server.server_port
pid = os.fork()
if pid == 0:
    for _ in range(9): server.handle_request()
    os._exit(7)
server.server_close()
def ask(method, path, body=None):
    line = http.client.HTTPConnection('127.0.0.1', port)
    line.request(method, path, body); answer = line.getresponse()
    got = answer.read(); line.close()
    return answer.status, got
def client(number):
    path = '/%d' % number
    if ask('GET', path) != (200, path.encode() * 3000): return 'WRONG GET'
    status, got = ask('POST', path, b'x' * number * 1000)
    if (status, got) != (200, b'took %d' % (number * 1000)): return f'WRONG POST {status} {got}'
    return f'client {number} done'
print(client(3), flush=True)
children = []
for number in (1, 20, 300):
    child = os.fork()
    if child == 0: os._exit(0 if client(number).endswith('done') else 1)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
print(ask('GET', '/last')[1][:20], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
