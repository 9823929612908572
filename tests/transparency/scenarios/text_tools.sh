# sed -i, awk with pipes, grep -r, cut, tr, od, patch, diff, cmp, dd with conv=fsync, sync, truncate, install, cp -a.
# @needs sed awk patch dd
seq 1000 > n; cp n old; sed -i -e 's/7/seven/g' -e '/00$/d' n; diff -u --label a --label b old n > patch; wc -l < patch; cp old again; patch -s again < patch; cmp n again && echo patched
awk '{ s += length($0); print $0 | "sort -r | head -2" } END { close("sort -r | head -2"); print s }' n
mkdir -p d/e; for i in $(seq $((30 / ${ROUNDS_DIVIDED_BY:-1}))); do echo "text $i" > "d/e/$i"; done
grep -rc 'text 1' d | sort | head -3
dd if=/dev/zero of=zeros bs=4k count=50 conv=fsync 2>/dev/null; dd if=old of=zeros bs=1 seek=100 count=10 conv=notrunc,fdatasync oflag=sync 2>/dev/null; sha256sum zeros
sync; sync zeros; sync -d zeros; sync -f .; sync nowhere 2>/dev/null; echo "sync status $?"
install -m 755 n d/installed; cp -a d copied; mv copied moved; ln -s moved link; rm -r d; truncate -s 12345 zeros; od -c -N 8 old; chmod -R go-rwx moved; cp --reflink=auto --sparse=always zeros sparse
split -b 1000 old piece.; cat piece.* | cmp - old && echo split; rm piece.*; tee a b c < old > /dev/null; md5sum a b c > sums; md5sum -c sums
