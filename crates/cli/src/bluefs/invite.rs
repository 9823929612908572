//! `speculator invite`, and the files that it makes.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bluefs_client::{Address, Client, OnDisconnect, Ticket};
use bluefs_server::{from_hex, identity_of, to_hex, Invitations};

use super::args::InviteOptions;
use crate::error::{plain, Failure};
use crate::generate::print;

/// The variable that an invitation may be in.
const VARIABLE: &str = "SPECULATOR_INVITATION";
/// The first word of an invitation.
const FORMAT: &str = "bluefs-invitation-1";

/// Makes an invitation, lists all, or withdraws one.
pub fn invite(options: &InviteOptions) -> Result<u8, Failure> {
    let store = &options.store;
    let failed = |error: std::io::Error| Failure::Bluefs(format!("cannot invite to {}: {error}", store.display()));
    if !store.join("state").is_file() {
        return Err(Failure::Bluefs(format!("{} is no store; make one with speculator serve", store.display())));
    }
    let invitations = Invitations::of(store);
    if options.list {
        for one in invitations.all().map_err(failed)? {
            let right = if one.read_only { "read-only" } else { "read-write" };
            let expires =
                one.expires.map_or_else(|| "never expires".to_owned(), |at| format!("expires at second {at}"));
            print(&format!("{} {} {right}, {expires}\n", one.number, one.volume))?;
        }
        return Ok(0);
    }
    if let Some(number) = options.withdraw {
        return match invitations.withdraw(number).map_err(failed)? {
            true => Ok(0),
            false => Err(Failure::Bluefs(format!("there is no invitation {number}; see speculator invite --list"))),
        };
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let expires = options.expires.map(|after| (now + after).as_secs());
    let identity = identity_of(store).map_err(failed)?;
    let (_, secret) = invitations.add(&options.volume, options.read_only, expires).map_err(failed)?;
    let (fingerprint, secret) = (to_hex(&identity.fingerprint()), to_hex(&secret));
    print(&format!("{FORMAT} {} {fingerprint} {secret}\n", options.volume))?;
    Ok(0)
}

/// Connects, with the invitation in a file or in the environment, if there is one.
pub fn connect(mut address: Address, file: Option<&Path>, on_disconnect: OnDisconnect) -> Result<Client, Failure> {
    let ticket = match given(file)? {
        Some((volume, ticket)) => {
            if address.volume.is_empty() {
                address.volume = volume;
            }
            Some(ticket)
        }
        None => None,
    };
    let advice = if ticket.is_some() { "" } else { "; does it run, with --plain? else an invitation is needed" };
    Client::connect(address, ticket, on_disconnect).map_err(|error| Failure::Bluefs(format!("{error}{advice}")))
}

/// The volume and the right of an invitation, if one is given.
fn given(file: Option<&Path>) -> Result<Option<(String, Ticket)>, Failure> {
    let (text, of) = match (file, std::env::var(VARIABLE)) {
        (Some(file), _) => {
            let text = std::fs::read_to_string(file);
            let failed = |error| Failure::Bluefs(format!("cannot read {}: {}", file.display(), plain(&error)));
            (text.map_err(failed)?, file.display().to_string())
        }
        (None, Ok(text)) if !text.is_empty() => (text, VARIABLE.to_owned()),
        (None, Err(std::env::VarError::NotUnicode(_))) => (String::new(), VARIABLE.to_owned()),
        (None, _) => return Ok(None),
    };
    match parse(&text) {
        Some(ticket) => Ok(Some(ticket)),
        // The text is a secret, or was to be one.
        None => Err(Failure::Bluefs(format!("{of} is no invitation of speculator invite"))),
    }
}

fn parse(text: &str) -> Option<(String, Ticket)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [FORMAT, volume, fingerprint, secret] = words.as_slice() else { return None };
    let ticket = Ticket { fingerprint: from_hex(fingerprint)?, secret: from_hex(secret)? };
    Some(((*volume).to_owned(), ticket))
}

/// `30m`, `12h`, `7d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number with s, m, h or d, such as 12h".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("12h"), Ok(Duration::from_secs(43_200)));
        for bad in ["", "h", "12", "-1d", "1w", "1é"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
