# A real C package: unpack, configure, make -j2, make check's program, make install under DESTDIR.
# @source hello_2.10.orig.tar.gz
# @needs make gcc gzip
# @timeout 240
# @ignore config.log *.a
set -e
tar xzf "$SOURCES/hello_2.10.orig.tar.gz"
cd hello-2.10
./configure --quiet --disable-nls > ../configure.out 2>&1
make -j2 > ../make.out 2>&1
# With two at once the order of the lines is not the program's to choose.
sort -o ../make.out ../make.out
./hello
make install DESTDIR="$HOME/installed" > /dev/null 2>&1
"$HOME/installed/usr/local/bin/hello" --greeting=inside
