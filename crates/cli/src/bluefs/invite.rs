//! `speculator invite`, and the files that it makes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bluefs_client::{Invitation, Ticket};
use bluefs_server::{identity_of, Invitations};

use super::args::InviteOptions;
use crate::error::Failure;
use crate::generate::print;

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
    let ticket = Ticket { fingerprint: identity.fingerprint(), secret };
    print(&format!("{}\n", Invitation { volume: options.volume.clone(), ticket }))?;
    Ok(0)
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
