# A web server in Python and curl as its client, over loopback, several at once.
# @needs python3 curl
cat > server.py <<'END'
import http.server, threading
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        open('posted', 'ab').write(body + b'\n')
        self.send_response(200); self.end_headers(); self.wfile.write(b'took %d' % len(body))
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
open('port.new', 'w').write(str(server.server_port))
import os; os.rename('port.new', 'port')
server.serve_forever()
END
seq 50000 > big
python3 server.py & while [ ! -e port ]; do sleep 0.05; done; at="http://127.0.0.1:$(cat port)"
curl -s "$at/big" | sha256sum; for i in 1 2 3 4; do curl -s "$at/big" -o "got$i" & done; wait %2 %3 %4 %5; sha256sum got*
curl -s -d 'some body' "$at/"; echo; curl -s -o /dev/null -w '%{http_code}\n' "$at/missing"; cat posted
kill %1; wait %1 2>/dev/null; echo "server $?"; rm port got*; curl -s "$at/" ; echo "refused $?"
