//! Prints `docs/SYSCALLS.md`.

fn main() {
    let mut page = String::new();
    syscall_table::write_markdown(&mut page).expect("a String takes everything");
    print!("{page}");
}
