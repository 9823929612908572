# sort of a big file with little memory (temporary files, threads), join, uniq, comm, split, shuf by seed.
# @needs sort awk
# @timeout 60
awk 'BEGIN { x = 1; for (i = 0; i < 400000; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%010d some text %d\n", x, i } }' > big
sort -S 1M --parallel=2 -T . big -o sorted; sha256sum < sorted; sort -c sorted && echo ordered
sort -S 2M -T . -k4,4n big | head -3; sort -u -k1,1 -S 1M -T . big | wc -l
split -n l/4 big part.; wc -l part.* | tail -1; sort -m <(sort part.aa) <(sort part.ab) <(sort part.ac) <(sort part.ad) | cmp - sorted && echo merged
comm -12 <(head -1000 sorted) <(sed -n 500,1500p sorted) | wc -l; rm big part.*; gzip -n sorted
