# Python subprocess: pipes both ways, timeouts, signals, many at once, stderr, environment, preexec, large data.
# @timeout 60
import os, signal, subprocess as sp, sys
divisor = int(os.environ.get('ROUNDS_DIVIDED_BY', 1))
print(sp.run(['tr', 'a-z', 'A-Z'], input=b'text', capture_output=True))
print(sp.run('echo out; echo err >&2; exit 3', shell=True, capture_output=True))
try:
    sp.run(['sleep', '10'], timeout=0.3)
except sp.TimeoutExpired as e:
    print('timed out', e.cmd)
child = sp.Popen(['sleep', '10']); child.send_signal(signal.SIGINT); print(child.wait())
big = os.urandom(0) + bytes(range(256)) * 20000
print(sp.run(['cat'], input=big, capture_output=True).stdout == big)
children = [sp.Popen(['sh', '-c', f'exit {i}']) for i in range(40 // divisor)]
print([c.wait() for c in children])
print(sp.check_output(['sh', '-c', 'echo $V; pwd | wc -l'], env={'V': 'value', 'PATH': os.environ['PATH']}, cwd='/'))
a = sp.Popen(['seq', '10000'], stdout=sp.PIPE); b = sp.Popen(['sort', '-rn'], stdin=a.stdout, stdout=sp.PIPE); a.stdout.close()
print(b.communicate()[0][:12], a.wait())
print(sp.run(['true'], preexec_fn=os.setsid, close_fds=True, start_new_session=False).returncode, sp.run(['ls', '/proc/self/fd'], capture_output=True).stdout.split())
try:
    sp.run(['no-such-program'])
except FileNotFoundError as e:
    print(e)
with open('log', 'wb') as log:
    for i in range(20 // divisor):
        sp.run(['echo', str(i)], stdout=log); log.flush(); os.fsync(log.fileno())
sys.exit(sp.run(['sh', '-c', 'exit 0']).returncode)
