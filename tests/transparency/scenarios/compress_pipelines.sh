# Compressors in pipelines and threads: gzip, bzip2, xz -T2, checksums; writing to files and /dev/stdout.
# @needs gzip bzip2 xz
# @timeout 60
seq 300000 > data; for c in gzip 'gzip -9n' bzip2 'xz -1 -T2'; do $c < data | tee out | wc -c | (read -r n; [ "$n" -gt 1000 ] && echo "$c"); done
gzip -nk data && zcat data.gz | cmp - data && echo gzip; xz -0k data && xzcat data.xz | cmp - data && echo xz; bzip2 -1k data && bunzip2 -c data.bz2 > /dev/stdout | cmp - data && echo bzip2
head -c 1000 data.gz > cut.gz; zcat cut.gz > /dev/null 2>&1; echo "truncated $?"; rm out
