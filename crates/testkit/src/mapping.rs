//! A file as a program sees it that maps it: without a call, and whatever becomes of the file.

use std::io::{self, Read};
use std::os::fd::AsFd;

#[allow(unsafe_code)]
mod sys;

use sys::Mapped;

/// A private mapping that is read only.
#[derive(Debug)]
pub struct Mapping {
    mapped: Mapped,
    input: io::PipeWriter,
    output: io::PipeReader,
}

impl Mapping {
    /// Maps so many bytes, privately. The file may be shorter.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        let mapped = Mapped::new(file.as_fd(), len)?;
        let (output, input) = io::pipe()?;
        Ok(Mapping { mapped, input, output })
    }

    /// What is there: `out` is at most a page. Where the file has no page it is an error, and no signal.
    pub fn read(&self, at: usize, out: &mut [u8]) -> io::Result<()> {
        self.mapped.write_to(at, out.len(), self.input.as_fd())?;
        (&self.output).read_exact(out)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_written_later_is_seen_and_the_end_is_no_signal() {
        let mut file = tempfile::tempfile().expect("a file");
        let mapping = Mapping::new(&file, 8192).expect("mapped");
        let mut out = [0; 3];
        assert!(mapping.read(0, &mut out).is_err());
        file.write_all(b"abcd").expect("written");
        mapping.read(1, &mut out).expect("there");
        assert_eq!(&out, b"bcd");
        assert!(mapping.read(4096, &mut out).is_err() && mapping.read(8190, &mut out).is_err());
    }
}
