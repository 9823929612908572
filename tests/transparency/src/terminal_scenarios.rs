//! What is done at a terminal: an editor, a pager, a shell with job control, a line-editing interpreter.

use crate::terminal::Step::{Await, AwaitEnd, Keys, Pause, Prompt, Resize, Runs, Screen};
use crate::terminal::TerminalScenario;

const SHELL: &[&str] = &["env", "PS1=> ", "bash", "--norc", "--noprofile", "-i"];
const LINES: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";

/// All scenarios at a terminal.
pub fn all() -> Vec<TerminalScenario> {
    vec![
        vim(),
        less(),
        shell_interrupt(),
        shell_suspend(),
        shell_resize(),
        shell_background(),
        cat_line_discipline(),
        quit_signal(),
        stty_modes(),
        modes_after_output(),
        python_prompt(),
    ]
}

fn vim() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_vim",
        command: &["vim", "-u", "NONE", "-i", "NONE", "-n", "text"],
        needs: &["vim"],
        files: &[("text", LINES)],
        steps: &[
            Await("ten"),
            Screen,
            Keys(&["dd", "ohello", "Escape"]),
            Await("hello\nthree"),
            Screen,
            Resize(60, 15),
            Pause(1000),
            Screen,
            Keys(&[":w", "Enter"]),
            Await("written"),
            Keys(&[":!cat text", "Enter"]),
            Await("Press ENTER"),
            Screen,
            Keys(&["Enter", ":q", "Enter"]),
            AwaitEnd,
        ],
    }
}

fn less() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_less",
        command: &["less", "text"],
        needs: &["less"],
        files: &[(
            "text",
            concat!(
                "a1\na2\na3\na4\na5\na6\na7\na8\na9\nb1\nb2\nb3\nb4\nb5\nb6\nb7\nb8\nb9\nc1\n",
                "c2\nc3\nc4\nc5\nc6\nc7\nc8\nc9\nd1\nd2\nd3\nd4\nd5\nd6\nd7\nd8\nd9\n"
            ),
        )],
        steps: &[
            Await("b9"),
            Screen,
            Keys(&["G"]),
            Await("d9"),
            Screen,
            Keys(&["g", "/c5", "Enter"]),
            Await("c5\nc6"),
            Screen,
            Resize(40, 10),
            Pause(1000),
            Screen,
            Keys(&["q"]),
            AwaitEnd,
        ],
    }
}

fn shell_interrupt() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_shell_interrupt",
        command: SHELL,
        needs: &[],
        files: &[],
        steps: &[
            Prompt(">"),
            Keys(&["sleep 100", "Enter"]),
            Runs("sleep 100"),
            Keys(&["C-c"]),
            Prompt(">"),
            Keys(&["echo status $?", "Enter"]),
            Await("status 130"),
            Prompt(">"),
            Keys(&["cat", "Enter"]),
            Runs("cat"),
            Keys(&["typed", "Enter"]),
            Await("typed\ntyped"),
            Keys(&["C-c"]),
            Prompt(">"),
            Keys(&["echo again $?", "Enter"]),
            Await("again 130"),
            Prompt(">"),
            // The prompt that is waited for must not be the one that is there already.
            Keys(&["half a line"]),
            Await("> half a line"),
            Keys(&["C-c"]),
            Await("half a line^C"),
            Prompt(">"),
            // A loop of children would end, or not, by where the signal finds it: natively, too.
            Keys(&["trap 'echo trapped' INT; sleep 100", "Enter"]),
            Runs("sleep 100"),
            Keys(&["C-c"]),
            Await("trapped"),
            Prompt(">"),
            Keys(&["echo end", "Enter"]),
            Await("\nend"),
            Screen,
        ],
    }
}

fn shell_suspend() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_shell_suspend",
        command: SHELL,
        needs: &[],
        files: &[],
        steps: &[
            Prompt(">"),
            Keys(&["cat", "Enter"]),
            Runs("cat"),
            Keys(&["C-z"]),
            Await("Stopped"),
            Prompt(">"),
            Keys(&["jobs", "Enter"]),
            Await("[1]+  Stopped                 cat\n> jobs"),
            Prompt(">"),
            Keys(&["fg", "Enter"]),
            Await("> fg\ncat"),
            Keys(&["back", "Enter"]),
            Await("back\nback"),
            Keys(&["C-d"]),
            Prompt(">"),
            Keys(&["sleep 100", "Enter"]),
            Runs("sleep 100"),
            Keys(&["C-z"]),
            Await("Stopped                 sleep"),
            Prompt(">"),
            Keys(&["bg; kill %1; wait %1; echo killed $?", "Enter"]),
            Await("killed 143"),
            Screen,
        ],
    }
}

fn shell_resize() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_shell_resize",
        command: SHELL,
        needs: &[],
        files: &[],
        steps: &[
            Prompt(">"),
            Keys(&["trap 'stty size' WINCH", "Enter"]),
            Prompt(">"),
            Keys(&["stty size", "Enter"]),
            Await("24 80"),
            Prompt(">"),
            Resize(70, 20),
            Pause(700),
            Keys(&["echo one", "Enter"]),
            Await("20 70"),
            Prompt(">"),
            Resize(90, 30),
            Pause(700),
            Keys(&["echo two; echo $COLUMNS", "Enter"]),
            Await("30 90"),
            Screen,
        ],
    }
}

fn shell_background() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_shell_background",
        command: SHELL,
        needs: &[],
        files: &[],
        steps: &[
            Prompt(">"),
            Keys(&["(read x; echo got $x) & wait %1 2>/dev/null; sleep 0.3; jobs | sed 's/  *$//'", "Enter"]),
            Await("Stopped"),
            Prompt(">"),
            Keys(&["fg >/dev/null", "Enter"]),
            Pause(1000),
            Keys(&["input", "Enter"]),
            Await("got input"),
            Keys(&["stty tostop; (echo from background) & wait; sleep 0.2; jobs | grep -c Stopped", "Enter"]),
            Await("\n1\n"),
            Keys(&["stty -tostop; fg > /dev/null", "Enter"]),
            Await("from background\n"),
            Prompt(">"),
            Keys(&["clear; echo done", "Enter"]),
            Await("done\n>"),
            Screen,
        ],
    }
}

fn cat_line_discipline() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_line_editing",
        command: &["cat"],
        needs: &[],
        files: &[],
        steps: &[
            Pause(300),
            Keys(&["helxx", "BSpace", "BSpace", "lo", "Enter"]),
            Await("hello\nhello"),
            Keys(&["erased words", "C-w", "kept", "Enter"]),
            Await("erased kept\nerased kept"),
            Keys(&["gone", "C-u", "line", "Enter"]),
            Await("line\nline"),
            Screen,
            Keys(&["C-d"]),
            AwaitEnd,
        ],
    }
}

fn quit_signal() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_exit_by_signal",
        command: &["bash", "-c", "ulimit -c 0; echo ready; exec sleep 100"],
        needs: &[],
        files: &[],
        // How the pane ended is not compared: natively it died of the signal, inside it exits with 128+n.
        steps: &[Await("ready"), Pause(300), Screen, Keys(&["C-c"]), AwaitEnd],
    }
}

fn stty_modes() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_modes",
        // A key that is typed before `read` has taken the echo away would be shown.
        command: &[
            "bash",
            "-c",
            "stty -a; stty -echo; echo begin; read -s -n 1 k; echo key $k; stty raw -echo; stty -a | head -3; \
             stty sane; tty | sed 's/[0-9]//'; sleep 1000",
        ],
        needs: &[],
        files: &[],
        steps: &[Await("begin"), Keys(&["k"]), Await("key k"), Await("/dev/pts"), Screen],
    }
}

/// What another process has written is shown in the modes that it was written in.
fn modes_after_output() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_modes_after_output",
        command: &[
            "bash",
            "-c",
            "for i in $(seq 20); do echo $i >> file; (echo line $i); stty -opost; stty opost; done; echo end; sleep 1000",
        ],
        needs: &[],
        files: &[],
        steps: &[Await("end"), Screen],
    }
}

fn python_prompt() -> TerminalScenario {
    TerminalScenario {
        name: "terminal_python",
        command: &["python3", "-q", "-E", "-S"],
        needs: &["python3"],
        files: &[],
        steps: &[
            Prompt(">>>"),
            Keys(&["1+1", "Enter"]),
            Prompt(">>>"),
            Keys(&["import time; print('as' + 'leep'); time.sleep(100)", "Enter"]),
            Await("\nasleep"),
            Keys(&["C-c"]),
            Await("KeyboardInterrupt"),
            Prompt(">>>"),
            Screen,
            Keys(&["C-d"]),
            AwaitEnd,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A screen shows what is typed before the program has done anything. So a scenario must not wait for a text that
    /// it has just typed.
    #[test]
    fn nobody_waits_for_what_was_typed() {
        let mut wrong = Vec::new();
        for scenario in all() {
            let (mut typed, mut is_at_prompt) = (String::new(), false);
            for step in scenario.steps {
                if let Keys(keys) = step {
                    typed = keys.iter().map(|key| if *key == "Enter" { "\n" } else { *key }).collect();
                    if !is_at_prompt {
                        // The terminal shows it, and the prompt comes behind it.
                        typed.push('>');
                    }
                }
                if let Await(text) = step {
                    wrong.extend(typed.contains(text).then_some((scenario.name, *text)));
                }
                is_at_prompt = matches!(step, Prompt(_));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
