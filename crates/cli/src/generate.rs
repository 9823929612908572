//! Completions and man pages, from the definition of the command line.

use std::io::{self, Stdout, Write};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::error::Failure;

/// Standard output. Where it was closed, the standard library has opened `/dev/null` in its place, and nobody would
/// ever see what is written there.
pub fn stdout() -> Result<Stdout, Failure> {
    match supervisor::closed_at_start().any(|fd| fd == libc::STDOUT_FILENO) {
        true => Err(Failure::Output(io::Error::from_raw_os_error(libc::EBADF))),
        false => Ok(io::stdout()),
    }
}

/// Writes what is done to standard output, if there is one.
pub fn print_done(text: &str) -> Result<(), Failure> {
    stdout().map_or(Ok(()), |_| print(text))
}

/// Writes to standard output; a reader that has gone away (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = stdout()?.lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

/// `speculator completions SHELL`.
pub fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "speculator", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// `speculator man [PAGE]`.
pub fn man(page: Option<&str>) -> Result<u8, Failure> {
    let mut root = Cli::command();
    root.build();
    let mut found = &root;
    for word in page.unwrap_or_default().split('-').filter(|word| !word.is_empty() && *word != "speculator") {
        found = found.find_subcommand(word).ok_or_else(|| no_page(page))?;
    }
    print(&String::from_utf8_lossy(&render(found.clone()).map_err(Failure::Output)?))?;
    Ok(0)
}

fn render(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).source(concat!("speculator ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    Ok(text)
}

fn no_page(page: Option<&str>) -> Failure {
    let pages = pages(&Cli::command(), "").join(", ");
    Failure::Usage(format!("no man page '{}'; there are {pages}", page.unwrap_or_default()))
}

/// The names of all pages below a command: each is its command's words with `-` between them.
fn pages(command: &Command, prefix: &str) -> Vec<String> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below
        .flat_map(|command| {
            let name = format!("{prefix}{}", command.get_name());
            let more = pages(command, &format!("{name}-"));
            std::iter::once(name).chain(more)
        })
        .collect()
}
