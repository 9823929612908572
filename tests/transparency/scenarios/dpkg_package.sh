# dpkg-deb builds, lists and unpacks a package; dpkg installs it into a root of its own (fsync everywhere).
# @root
# @needs dpkg-deb dpkg
# @timeout 60
# @ignore *.deb *-old lock* diversions* statoverride* dpkg.log
mkdir -p package/DEBIAN package/usr/share/example root/var/lib/dpkg/{updates,info,triggers,parts}; touch root/var/lib/dpkg/{status,available}
printf 'Package: example\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <n@example.org>\nDescription: example\n' > package/DEBIAN/control
for i in $(seq 30); do seq "$i" > "package/usr/share/example/f$i"; done
SOURCE_DATE_EPOCH=1000000000 dpkg-deb --root-owner-group -b package example.deb > /dev/null; dpkg-deb -c example.deb | awk '{ print $1, $6 }'; dpkg-deb -f example.deb Version
dpkg --root="$PWD/root" --force-all --log=/dev/null -i example.deb > out 2>&1; echo "install $?"; cat root/usr/share/example/f3; dpkg --root="$PWD/root" --log=/dev/null -r example > /dev/null 2>&1; echo "remove $?"; ls root/usr/share 2>/dev/null; rm -rf root example.deb out
