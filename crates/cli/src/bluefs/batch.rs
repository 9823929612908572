//! `speculator bluefs batch`.

use std::fs::File;
use std::path::Path;

use bluefs_client::{own_cred, Address, Batch, OnDisconnect};

use super::access::ClientAccess;
use super::advice;
use super::progress::Progress;
use crate::error::Failure;
use crate::generate::print_done;
use crate::input::read_text;
use crate::tell::counted;

/// Four times what a transaction may have of contents: they may be quoted, and there are paths.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// Carries a list of operations out.
pub fn batch(address: Address, access: &ClientAccess, file: Option<&Path>) -> Result<u8, Failure> {
    let name = file.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let read = match file {
        Some(file) => File::open(file).and_then(|file| read_text(file, LIST_BYTES_MAX)),
        None => read_text(std::io::stdin(), LIST_BYTES_MAX),
    };
    let otherwise = "give a list of operations, as speculator bluefs batch --help has them";
    let text = read.map_err(|error| advice::failed(&format!("read {name}"), &error, otherwise))?;
    let failed = |error: &dyn std::fmt::Display| Failure::Bluefs(format!("{name}: {error}"));
    let batch = Batch::parse(&text).map_err(|error| failed(&error))?;
    let client = access.connect(address, OnDisconnect::Error)?;
    let progress = Progress::begin(client.watch(), batch.bytes());
    let done = batch.run(&client, &own_cred());
    drop(progress);
    let csn = done.map_err(|error| failed(&error))?;
    let (operations, are) = (counted(batch.len() as u64, "operation"), if batch.len() == 1 { "is" } else { "are" });
    print_done(&format!("{operations} {are} on the server's disk, as commit {}\n", csn.0))?;
    Ok(0)
}
