//! A patched program runs: its file gets the patched text, the stubs, and an agent that only makes the call.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use call_sites::{plan, Options, SegmentPlan};
use support::options;

const PROGRAM: &str = r#"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static volatile int caught;
static void handler(int signal) { caught += signal; }
int main(int argc, char **argv) {
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    kill(getpid(), SIGUSR1);
    int pipes[2], status;
    char text[16] = "";
    struct stat stat_of;
    struct timespec pause = {0, 1000};
    if (pipe(pipes) || nanosleep(&pause, 0)) return 1;
    if (fork() == 0) { dprintf(pipes[1], "child"); _exit(7); }
    wait(&status);
    if (read(pipes[0], text, 15) < 0) return 2;
    errno = 0;
    int missing = stat("/nowhere/at/all", &stat_of);
    FILE *file = fopen("/proc/self/comm", "r");
    char *big = malloc(1 << 24);
    printf("%d %s %d %d %d %d %d\n", caught, text, WEXITSTATUS(status), missing, errno, file != 0, big != 0);
    return 42;
}
"#;

/// Lets the stack's red zone be, makes the call, and continues where rcx says (which the call destroys):
/// `lea rsp, [rsp - 128]; push rcx; syscall; pop rcx; lea rsp, [rsp + 128]; jmp rcx`
fn agent() -> Vec<u8> {
    let mut code = vec![0x48, 0x8d, 0x64, 0x24, 0x80, 0x51, 0x0f, 0x05, 0x59];
    code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, 0xff, 0xe1]);
    code.resize(4096, 0);
    code
}

/// The file with its text replaced, and stubs and agent as one more segment in place of a note.
fn patched_file(file: &[u8], segment: &SegmentPlan) -> Vec<u8> {
    const PT_NOTE: u32 = 4;
    let mut patched = file.to_vec();
    let start = segment.file_offset as usize;
    let len = segment.text.len().min(file.len() - start);
    patched[start..start + len].copy_from_slice(&segment.text[..len]);
    patched.resize(patched.len().next_multiple_of(4096), 0);
    let offset = patched.len() as u64;
    patched.extend(&segment.stubs);
    patched.extend(agent());
    let added = patched.len() as u64 - offset;
    let area = segment.vaddr.wrapping_add_signed(segment.stub_distance);
    let headers = u64::from_le_bytes(file[32..40].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(file[56..58].try_into().unwrap()));
    let note = (0..count)
        .map(|index| headers + 56 * index)
        .find(|&at| file[at..at + 4] == PT_NOTE.to_le_bytes())
        .expect("a note to give its header");
    let mut header = Vec::from(1u32.to_le_bytes());
    header.extend(5u32.to_le_bytes());
    for word in [offset, area, area, added, added, 4096] {
        header.extend(word.to_le_bytes());
    }
    patched[note..note + 56].copy_from_slice(&header);
    patched
}

fn run(program: &Path) -> Output {
    Command::new(program).env_clear().output().expect("the program starts")
}

#[test]
fn a_patched_static_program_does_the_same() {
    let directory = std::env::temp_dir().join(format!("call-sites-run-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let [source, whole, patched] = ["a.c", "whole", "patched"].map(|name| directory.join(name));
    std::fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("gcc").args(["-static", "-no-pie", "-O2"]).arg(&source).arg("-o").arg(&whole).output();
    if !built.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: gcc -static: {built:?}");
        return;
    }
    let file = std::fs::read(&whole).unwrap();
    // The agent stands behind the stubs, whose place and length do not depend on where it is.
    let first = &plan(&file, &options()).unwrap().segments[0];
    let agent = first.vaddr.wrapping_add_signed(first.stub_distance) + first.stubs.len() as u64;
    let planned = plan(&file, &Options { agent_entry: agent, ..Options::default() }).unwrap();
    assert_eq!(planned.segments.len(), 1);
    std::fs::write(&patched, patched_file(&file, &planned.segments[0])).unwrap();
    std::fs::set_permissions(&patched, std::fs::Permissions::from_mode(0o755)).unwrap();

    let (native, inside) = (run(&whole), run(&patched));
    assert_eq!(native.status.code(), Some(42));
    assert_eq!(inside, native);
    assert_no_agent_no_calls(&patched, &planned.segments[0], &patched_file(&file, &planned.segments[0]));
    std::fs::remove_dir_all(&directory).unwrap();
}

/// With a trap in the agent's place the program dies at its first call: so calls did go through the agent.
fn assert_no_agent_no_calls(path: &Path, segment: &SegmentPlan, file: &[u8]) {
    use std::os::unix::process::ExitStatusExt;
    const SIGTRAP: i32 = 5;
    let mut trapped = file.to_vec();
    let agent_at = trapped.len() - 4096;
    trapped[agent_at] = 0xcc;
    assert!(segment.stubs.len() >= 4096);
    std::fs::write(path, trapped).unwrap();
    assert_eq!(run(path).status.signal(), Some(SIGTRAP));
}
