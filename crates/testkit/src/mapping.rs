//! A file as a program sees it that maps it: without a call, and whatever becomes of the file.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

#[allow(unsafe_code)]
mod sys;

use sys::{Mapped, Sharing};

/// A mapping: a private one that is read only, or one that others see who map the file.
#[derive(Debug)]
pub struct Mapping {
    mapped: Mapped,
    input: io::PipeWriter,
    output: io::PipeReader,
}

impl Mapping {
    /// Maps so many bytes, privately. The file may be shorter.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        Mapping::of(Mapped::new(file.as_fd(), len, Sharing::Private)?)
    }

    /// The same, shared, to be read.
    pub fn shared(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        Mapping::of(Mapped::new(file.as_fd(), len, Sharing::Read)?)
    }

    /// The same, shared, to be read and stored in.
    pub fn stored(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        Mapping::of(Mapped::new(file.as_fd(), len, Sharing::Stored)?)
    }

    fn of(mapped: Mapped) -> io::Result<Mapping> {
        let (output, input) = io::pipe()?;
        Ok(Mapping { mapped, input, output })
    }

    /// Stores these bytes there: at most a page. Where the file has no page it is an error, and no signal.
    pub fn store(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        (&self.input).write_all(bytes)?;
        let stored = self.mapped.read_from(at, bytes.len(), self.output.as_fd());
        if stored.is_err() {
            // They are still in there.
            (&self.output).read_exact(&mut vec![0; bytes.len()])?;
        }
        stored
    }

    /// `msync`: when it returns, what was stored is where the file is.
    pub fn sync(&self) -> io::Result<()> {
        self.mapped.sync()
    }

    /// What is there: `out` is at most a page. Where the file has no page it is an error, and no signal.
    pub fn read(&self, at: usize, out: &mut [u8]) -> io::Result<()> {
        self.mapped.write_to(at, out.len(), self.input.as_fd())?;
        (&self.output).read_exact(out)
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn what_is_stored_is_in_the_file() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"abcd").expect("written");
        let (stored, shared) = (Mapping::stored(&file, 8192), Mapping::shared(&file, 8192));
        let (stored, shared) = (stored.expect("mapped"), shared.expect("mapped"));
        stored.store(1, b"xy").expect("there");
        let mut out = [0; 4];
        shared.read(0, &mut out).expect("there");
        assert_eq!(&out, b"axyd");
        assert!(stored.store(4096, b"z").is_err() && stored.sync().is_ok());
        stored.store(0, b"w").expect("nothing is left in between");
        shared.read(0, &mut out).expect("there");
        assert_eq!(&out, b"wxyd");
    }
}
