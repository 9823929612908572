use std::fmt::Display;
use std::io;

/// What could not be done. A violation of a promise is no error: see [`super::Violation`].
#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    /// The kernel or a file refused.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, with the object's name.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A command ended badly.
    #[error("{command} {outcome}: {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        outcome: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// Ctrl-C, or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

impl CrashError {
    /// For `map_err`: `.map_err(CrashError::system(format!("open {path}")))`.
    pub fn system<E: Into<io::Error>>(action: impl Display) -> impl FnOnce(E) -> CrashError {
        let action = action.to_string();
        move |source| CrashError::System { action, source: source.into() }
    }
}
