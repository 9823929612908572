//! `speculator bluefs batch`.

use std::io::Read;
use std::path::Path;

use bluefs_client::{own_cred, Address, Batch, OnDisconnect};

use super::access::ClientAccess;
use super::progress::Progress;
use crate::error::{plain, Failure};
use crate::generate::print;

/// Carries a list of operations out.
pub fn batch(address: Address, access: &ClientAccess, file: Option<&Path>) -> Result<u8, Failure> {
    let name = file.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let read = match file {
        Some(file) => std::fs::read_to_string(file),
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
    };
    let text = read.map_err(|error| Failure::Bluefs(format!("cannot read {name}: {}", plain(&error))))?;
    let failed = |error: &dyn std::fmt::Display| Failure::Bluefs(format!("{name}: {error}"));
    let batch = Batch::parse(&text).map_err(|error| failed(&error))?;
    let client = access.connect(address, OnDisconnect::Error)?;
    let progress = Progress::begin(client.watch(), batch.bytes());
    let done = batch.run(&client, &own_cred());
    drop(progress);
    let csn = done.map_err(|error| failed(&error))?;
    print(&format!("{} operations are on the server's disk, as commit {}\n", batch.len(), csn.0))?;
    Ok(0)
}
