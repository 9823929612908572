# A new namespace of processes: its first process is the one that the program makes, and numbers there are its own.
# @root
# @needs unshare
for i in 1 2 3; do unshare -fp sh -c 'echo a; echo b | cat; (exit 3); echo $?; sh -c "kill -9 \$\$"; echo $?'; done
# Whether dash says that the job was terminated depends on when it hears of that.
unshare -fp sh -c 'sleep 100 & kill $!; wait $!; echo $?; echo $$' 2> /dev/null
unshare -fp true; echo $?
unshare -fp sh -c 'exit 5'; echo $?
unshare -fp unshare -fp sh -c 'echo $$; echo c > made; cat made'
