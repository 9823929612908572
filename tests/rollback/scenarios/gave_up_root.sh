# Children that give up root: they do not run ahead, because nobody could put back their descriptors and limits.
# @root
# @needs setpriv
as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
for i in 1 2 3 4 5 6; do as sh -c 'echo a | cat; id -u; ls / | wc -l; (exit 3); echo $?'; done
as sh -c 'trap "echo heard" USR1; kill -USR1 $$; mkfifo f 2>&1 | sed "s/.*: //"; exit 7'; echo $?
setpriv --bounding-set=-sys_admin sh -c 'echo b | tr b c; (exit 4); echo $?'
setpriv --no-new-privs sh -c 'echo d | tr d e > made; cat made; rm made'
