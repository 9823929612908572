//! By what right a client connects: an invitation, or none, which is to be said.

use std::fs::File;
use std::path::PathBuf;

use bluefs_client::{Address, Client, Disk, Invitation, OnDisconnect};
use clap::{Args, ValueHint};

use super::advice;
use crate::error::Failure;
use crate::input::read_text;

/// The variable that an invitation may be in.
const VARIABLE: &str = "SPECULATOR_INVITATION";

/// An invitation is one short line.
const BYTES_MAX: u64 = 4096;

/// What a command that connects is told.
#[derive(Clone, Debug, Default, Args)]
pub struct ClientAccess {
    /// A file with what `speculator invite` has printed
    ///
    /// When left out, the line itself may be in the environment, as SPECULATOR_INVITATION.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub invitation: Option<PathBuf>,

    /// Connect without encryption and without an invitation, to a server of this machine that was started with --plain
    #[arg(long)]
    pub plain: bool,
}

impl ClientAccess {
    /// Connects.
    pub fn connect(&self, address: Address, on_disconnect: OnDisconnect) -> Result<Client, Failure> {
        self.connect_with(address, on_disconnect, None)
    }

    /// The same with contents that were kept on disk.
    pub fn connect_with(
        &self,
        address: Address,
        on_disconnect: OnDisconnect,
        disk: Option<Disk>,
    ) -> Result<Client, Failure> {
        let failed = |text: String| Failure::Bluefs(text);
        let invitation = match (self.given()?, self.plain) {
            (Some((_, of)), true) => {
                return Err(failed(format!(
                    "cannot connect to {address} with --plain and an invitation ({of}) at once; leave one of them out"
                )))
            }
            (None, false) => {
                return Err(failed(format!(
                    "cannot connect to {address}: an invitation is needed; give --invitation FILE with what \
                     speculator invite has printed, or --plain if the server runs on this machine with --plain"
                )))
            }
            (given, _) => given.map(|(invitation, _)| invitation),
        };
        let address = invitation.iter().fold(address, |address, invitation| invitation.completes(address));
        let ticket = invitation.map(|invitation| invitation.ticket);
        let connected = Client::connect_with(address, ticket, on_disconnect, disk);
        connected.map_err(|error| advice::connecting(&error, self.plain))
    }

    /// The invitation and where it was, if one is given.
    fn given(&self) -> Result<Option<(Invitation, String)>, Failure> {
        let (text, of) = match (&self.invitation, std::env::var(VARIABLE)) {
            (Some(file), _) => {
                let text = File::open(file).and_then(|file| read_text(file, BYTES_MAX));
                let what = format!("read the invitation in {}", file.display());
                let otherwise = "name a file with what speculator invite has printed";
                let text = text.map_err(|error| advice::failed(&what, &error, otherwise));
                (text?, file.display().to_string())
            }
            (None, Ok(text)) if !text.is_empty() => (text, VARIABLE.to_owned()),
            (None, Err(std::env::VarError::NotUnicode(_))) => (String::new(), VARIABLE.to_owned()),
            (None, _) => return Ok(None),
        };
        match text.parse() {
            Ok(invitation) => Ok(Some((invitation, of))),
            Err(error) => Err(Failure::Bluefs(format!("{of} is {error}; it has to be the line that was printed"))),
        }
    }
}
