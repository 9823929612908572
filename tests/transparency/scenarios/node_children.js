// Node: child processes with pipes and IPC, cluster-like fork, HTTP over loopback, signals.
// @needs node
// @timeout 60
const { spawn, fork, execFile, execSync } = require('child_process'), http = require('http');
if (process.argv[2] === 'child') { process.on('message', m => { process.send(m * 2); process.disconnect(); }); return; }
const once = (e, n) => new Promise(r => e.once(n, (...a) => r(a)));
(async () => {
  const cat = spawn('cat'); let out = ''; cat.stdout.on('data', d => out += d); cat.stdin.end('through cat\n'); console.log(await once(cat, 'close'), out);
  const child = fork(__filename, ['child']); child.send(21); console.log(await once(child, 'message').then(a => a[0]), (await once(child, 'exit'))[0]);
  const sleep = spawn('sleep', ['10']); sleep.kill('SIGTERM'); console.log(await once(sleep, 'exit'));
  console.log(execSync('echo sync; exit 0').toString());
  console.log(await new Promise(r => execFile('sh', ['-c', 'exit 4'], e => r(e.code))));
  const server = http.createServer((q, s) => s.end('hello ' + q.url)).listen(0, '127.0.0.1'); await once(server, 'listening');
  const get = p => new Promise(r => http.get({ port: server.address().port, host: '127.0.0.1', path: p }, s => { let t = ''; s.on('data', d => t += d).on('end', () => r(t)); }));
  console.log(await Promise.all(['/a', '/b', '/c'].map(get))); server.close();
  process.once('SIGUSR2', () => { console.log('signal'); }); process.kill(process.pid, 'SIGUSR2'); await new Promise(r => setTimeout(r, 50));
})();
