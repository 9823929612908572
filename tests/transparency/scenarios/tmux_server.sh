# tmux as a whole inside: its server, a pseudo-terminal for each pane, clients that come and go, a job that it runs.
# @needs tmux
# @timeout 60
export TMUX_TMPDIR=$PWD; unset TMUX
t() { tmux -f /dev/null -L inside "$@"; }
await() { for i in $(seq 200); do t capture-pane -p -t "$1" 2>/dev/null | grep -q "$2" && return; sleep 0.05; done; echo "not seen: $2"; t capture-pane -p -t "$1"; }
t new-session -d -s one -n first -x 80 -y 24 'PS1="> " bash --norc --noprofile -i'; await one '^>'
t send-keys -t one 'echo to-a-file > made; stty size; echo sh$((40+2))' Enter; await one sh42; cat made
t capture-pane -p -t one | grep -v '^$'
t split-window -t one 'cat > typed'; t send-keys -t one 'into cat' Enter C-d; for i in $(seq 100); do [ -s typed ] && [ "$(t list-panes -t one | wc -l)" = 1 ] && break; sleep 0.05; done; cat typed; t list-panes -t one | wc -l
t set-buffer 'a buffer'; t show-buffer; echo; t save-buffer saved; cat saved; echo
t new-window -t one -n second 'sleep 100'; t list-windows -t one -F '#{window_index} #{window_name}'
t resize-window -t one:0 -x 60 -y 20; t send-keys -t one:0 'clear; until [ "$(stty size)" = "20 60" ]; do sleep 0.05; done; echo resi"zed"' Enter; await one:0 '^resized'
t run-shell 'echo from a job > job'; cat job; t wait-for -S channel; t wait-for channel; echo waited
t send-keys -t one:0 'exit' Enter; for i in $(seq 100); do [ "$(t list-windows -t one | wc -l)" = 1 ] && break; sleep 0.05; done; t list-windows -t one -F '#{window_name}'
t kill-server; for i in $(seq 100); do t list-sessions > /dev/null 2>&1 || break; sleep 0.05; done; t list-sessions 2>/dev/null; echo "gone $?"; rm -rf tmux-* made typed saved job
