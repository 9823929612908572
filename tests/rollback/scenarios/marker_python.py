# Every wrong answer that Python meets makes it say so; children through pipes.
# @never WRONG Traceback Error
# @memory
import os, subprocess, sys
for i in range(6):
    if not os.path.exists('/etc/passwd'): print('WRONG exists')
    if 'passwd' not in os.listdir('/etc'): print('WRONG listdir')
    out = subprocess.run(['cat'], input=b'x' * 5000, stdout=subprocess.PIPE).stdout
    if len(out) != 5000: print('WRONG cat', len(out))
    with open('file', 'w') as f: f.write(str(i) * 100)
    os.rename('file', 'other')
    if open('other').read() != str(i) * 100: print('WRONG content')
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, b'child'); os._exit(i)
    os.close(w)
    if os.read(r, 100) != b'child': print('WRONG pipe')
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != i: print('WRONG status')
    os.close(r)
print('end', len(os.listdir('/proc/self/fd')))
