// Node: asynchronous and synchronous files, streams, fsync, watchers off, timers, worker threads.
// @needs node
// @timeout 60
const fs = require('fs'), { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
if (!isMainThread) {
  let sum = 0; for (let i = 0; i < 1e6; i++) sum += i % workerData; parentPort.postMessage(sum); return;
}
(async () => {
  await Promise.all([...Array(50).keys()].map(async i => {
    const f = await fs.promises.open(`file${i}`, 'w'); await f.write('line\n'.repeat(i)); await f.sync(); await f.close();
  }));
  console.log(fs.readdirSync('.').length, fs.statSync('file49').size);
  fs.createReadStream('file49').pipe(fs.createWriteStream('copy')).on('finish', async () => {
    console.log(fs.readFileSync('copy').equals(fs.readFileSync('file49')));
    const results = await Promise.all([3, 5, 7].map(n => new Promise(r => new Worker(__filename, { workerData: n }).on('message', r))));
    console.log(results);
    try { fs.readFileSync('missing'); } catch (e) { console.log(e.code); }
    setTimeout(() => { console.log('timer'); process.exitCode = 0; }, 20);
  });
})();
