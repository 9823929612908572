//! What people are told on standard error besides errors ([`crate::error`]).

/// `tell!`, without its panic: whoever reads our standard error may have left, and the status still tells.
macro_rules! tell {
    ($($text:tt)*) => {
        crate::tell::line(format_args!($($text)*))
    };
}

/// `1 client`, `2 clients`; of things whose plural ends so.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// See [`tell!`].
pub(crate) fn line(text: std::fmt::Arguments) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
}

/// Text that ends its lines itself.
pub(crate) fn text(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}
