// Node: worker threads, timers, files by the thread pool, children and their pipes, all in one event loop.
// @needs node
// @memory
// @never WRONG
// @timeout 120
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { spawn } = require('child_process'), fs = require('fs').promises;
if (!isMainThread) {
  parentPort.on('message', n => { parentPort.postMessage(n * n); if (n === 3) parentPort.close(); });
  return;
}
const once = (e, n) => new Promise(r => e.once(n, (...a) => r(a)));
(async () => {
  const worker = new Worker(__filename); let sum = 0; worker.on('message', n => sum += n);
  for (const n of [1, 2, 3]) worker.postMessage(n);
  await once(worker, 'exit'); console.log('sum', sum);
  await Promise.all([0, 1, 2].map(n => fs.writeFile(`file${n}`, 'x'.repeat(n))));
  console.log((await Promise.all([0, 1, 2].map(n => fs.stat(`file${n}`)))).map(s => s.size));
  const cat = spawn('cat'); let out = ''; cat.stdout.on('data', d => out += d); cat.stdin.end('through cat');
  console.log(await once(cat, 'close'), out);
  await new Promise(r => setTimeout(r, 5));
  console.log((await fs.readdir('.')).filter(n => n.startsWith('file')).join());
})();
