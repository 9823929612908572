#!/bin/bash
# Scripts by #!, nested ones, with arguments, with a missing interpreter, without #!, by relative path, through PATH.
printf '#!/bin/sh\necho "plain: $0 $*"\n' > plain
printf '#!%s/plain with one argument\n' "$PWD" > nested
printf '#!%s/nested\n' "$PWD" > twice
printf '#!/nonexistent/interpreter\n' > missing
printf 'echo "no line: $1"\n' > bare
printf '#!/usr/bin/env -S bash -e -u\necho "env: $-" | grep -o eu || echo "env: $-"\n' > by_env
printf '#! /bin/cat\nshown\n' > cat_me
chmod +x plain nested twice missing bare by_env cat_me
./plain a 'b c'
./nested a
./twice x | sed "s|$PWD|.|g"
./missing 2>/dev/null; echo "missing: $?"
./bare argument
./by_env >/dev/null; echo "by_env $?"
./cat_me
PATH=$PWD:$PATH plain through PATH | sed "s|$PWD|.|g"
chmod -x plain; ./plain 2>/dev/null; echo "not executable: $?"
