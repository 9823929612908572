# Python with files: tempfile, mmap, shutil, zipfile, pathlib, os.scandir, locks, fsync, os.replace in threads.
# @timeout 60
import concurrent.futures, fcntl, mmap, os, pathlib, shutil, tempfile, zipfile
rounds = 100 // int(os.environ.get('ROUNDS_DIVIDED_BY', 1))
root = pathlib.Path('root')
def make(n):
    p = root / f'd{n % 5}' / f'f{n}'
    p.parent.mkdir(parents=True, exist_ok=True)
    temporary = p.with_suffix('.new')
    with open(temporary, 'w') as f: f.write('x' * n); f.flush(); os.fsync(f.fileno())
    os.replace(temporary, p)
    return n
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(make, range(rounds))))
print(sorted(str(p) for p in root.rglob('f9*')), sum(p.stat().st_size for p in root.rglob('f*')))
with zipfile.ZipFile('z.zip', 'w') as z: [z.writestr(zipfile.ZipInfo(str(p)), p.read_text()) for p in sorted(root.rglob('f*'))]
shutil.copytree(root, 'copy'); shutil.move('copy', 'moved'); shutil.rmtree('root')
with open('map', 'w+b') as f:
    f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[100:105] = b'bytes'; m.flush(); m.close(); f.seek(100); print(f.read(5))
with tempfile.TemporaryDirectory(dir='.') as t: pathlib.Path(t, 'x').write_text('y'); print(os.listdir(t))
with open('lock', 'w') as f: fcntl.lockf(f, fcntl.LOCK_EX); print('locked')
print([e.name for e in sorted(os.scandir('moved'), key=lambda e: e.name)], os.path.exists('root'))
