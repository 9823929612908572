# Many small programs that change files, in the directory that is the argument; what it prints and leaves is the same each time.
cd $1
mkdir -p src/a/b out
i=0; while [ $i -lt 12 ]; do echo "line $i" > src/f$i; echo more >> src/f$i; i=$((i+1)); done
for f in src/f*; do cp $f out/; done
cat src/f* > all; wc -l < all
mv src/f3 src/a/; ln src/f4 hard4; ln -s src/f5 sym5; rm src/f6; chmod 640 src/f7; touch -d @1000000 src/f8
sort -r all > sorted; grep -c line sorted
truncate -s 100000 sparse; printf Z | dd of=sparse bs=1 seek=70000 conv=notrunc status=none
tar --mtime=@0 --sort=name -cf t.tar src; mkdir x; tar xf t.tar -C x; diff -r src x/src && echo same
rm -r x/src/a; rmdir x/src/b 2>/dev/null; mkdir gone; rmdir gone
cat <<E
here $(ls | wc -l)
E
sed -i 's/line/LINE/' out/f1; head -1 out/f1
for f in out/f*; do mv $f $f.t; done; ls out; stat -c '%h %s' hard4
$PYTHON -c '
import os
os.mkdir("py"); os.chdir("py")
for i in range(20):
    open("n%d"%i,"w").write("x"*i*100)
for i in range(0,20,2): os.unlink("n%d"%i)
for i in range(1,20,4): os.rename("n%d"%i,"r%d"%i)
os.setxattr("r1","user.a",b"1"); os.chown("r5",3,4)
print(sorted(os.listdir(".")))
'
find . -type f | sort | xargs md5sum | md5sum
