//! The line that `speculator invite` prints: `bluefs-invitation-1 VOLUME FINGERPRINT SECRET`.

use std::fmt;
use std::str::FromStr;

use bluefs_net::{from_hex, to_hex};

use crate::address::Address;
use crate::Ticket;

/// Its first word.
const FORMAT: &str = "bluefs-invitation-1";

/// A right to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The volume's name.
    pub volume: String,
    /// What the client shows.
    pub ticket: Ticket,
}

impl Invitation {
    /// The address that is meant: one without a volume means the invitation's.
    pub fn completes(&self, mut address: Address) -> Address {
        if address.volume.is_empty() {
            address.volume.clone_from(&self.volume);
        }
        address
    }
}

/// A text is none. It is not shown: it may be most of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no invitation of speculator invite")]
pub struct InvitationError;

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<Invitation, InvitationError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [FORMAT, volume, fingerprint, secret] = words.as_slice() else { return Err(InvitationError) };
        let fingerprint = from_hex(fingerprint).ok_or(InvitationError)?;
        let secret = from_hex(secret).ok_or(InvitationError)?;
        Ok(Invitation { volume: (*volume).to_owned(), ticket: Ticket { fingerprint, secret } })
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Ticket { fingerprint, secret } = &self.ticket;
        write!(f, "{FORMAT} {} {} {}", self.volume, to_hex(fingerprint), to_hex(secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let ticket = Ticket { fingerprint: [7; 32], secret: [0xfe; 32] };
        let invitation = Invitation { volume: "work".to_owned(), ticket };
        let text = invitation.to_string();
        assert_eq!(text.parse(), Ok(invitation.clone()));
        assert_eq!(format!("  {}\n", text.replace(' ', "\t ")).parse(), Ok(invitation));
        for bad in ["", "bluefs-invitation-1 work", &text[1..], &text[..text.len() - 1], &format!("{text} more")] {
            assert_eq!(bad.parse::<Invitation>(), Err(InvitationError), "{bad}");
        }
    }

    #[test]
    fn an_address_names_its_volume_itself() {
        let ticket = Ticket { fingerprint: [0; 32], secret: [0; 32] };
        let invitation = Invitation { volume: "work".to_owned(), ticket };
        let volume = |address: &str| invitation.completes(address.parse().expect("an address")).volume;
        assert_eq!([volume("bluefs://host/"), volume("bluefs://host/other")], ["work", "other"]);
    }
}
