//! `speculator invite`, and the files that it makes.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bluefs_client::{Invitation, Ticket};
use bluefs_server::{identity_of, Invitations};

use super::args::InviteOptions;
use super::{advice, status};
use crate::error::Failure;
use crate::generate::{print, stdout};

/// Makes an invitation, lists all, or withdraws one.
pub fn invite(options: &InviteOptions) -> Result<u8, Failure> {
    let store = &options.store;
    let what = format!("invite to {}", store.display());
    let failed = |error: std::io::Error| advice::failed(&what, &error, "be the owner of the store, or root");
    if !store.join("state").is_file() {
        return Err(Failure::Bluefs(format!("{} is no store; make one with speculator serve", store.display())));
    }
    let invitations = Invitations::of(store);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if options.list {
        for one in invitations.all().map_err(failed)? {
            let right = if one.read_only { "read-only" } else { "read-write" };
            let expires = one.expires.map_or_else(|| "never expires".to_owned(), |at| until(at, now.as_secs()));
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
    let mut stdout = stdout()?.lock();
    let expires = options.expires.map(|after| (now + after).as_secs());
    let identity = identity_of(store).map_err(failed)?;
    check_volume(options)?;
    let (number, secret) = invitations.add(&options.volume, options.read_only, expires).map_err(failed)?;
    let ticket = Ticket { fingerprint: identity.fingerprint(), secret };
    let line = format!("{}\n", Invitation { volume: options.volume.clone(), ticket });
    if let Err(error) = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()) {
        // Its secret is nowhere else: nobody has it.
        invitations.withdraw(number).map_err(failed)?;
        return Err(Failure::Output(error));
    }
    Ok(0)
}

/// The server that runs on the store knows its volumes. Where none runs, or this user may not look at it, nobody says:
/// to open the store is the server's alone.
fn check_volume(options: &InviteOptions) -> Result<(), Failure> {
    let store = std::fs::canonicalize(&options.store).unwrap_or_else(|_| options.store.clone());
    let servers = status::servers().unwrap_or_default();
    let Some(server) = servers.into_iter().find(|server| Path::new(&server.store) == store) else { return Ok(()) };
    let volumes = server.volumes;
    if volumes.is_empty() || volumes.iter().any(|volume| volume.name == options.volume) {
        return Ok(());
    }
    let names: Vec<String> = volumes.into_iter().map(|volume| volume.name).collect();
    let (volume, names) = (&options.volume, names.join(", "));
    Err(Failure::Bluefs(format!(
        "cannot invite to the volume {volume}: there are {names}; speculator serve --volume {volume} makes it"
    )))
}

/// When an invitation expires, as seen now; both are seconds.
fn until(at: u64, now: u64) -> String {
    match at.saturating_sub(now) {
        0 => "expired".to_owned(),
        left @ 1..60 => format!("expires in {left} s"),
        left @ 60..3600 => format!("expires in {} min", left / 60),
        left @ 3600..86_400 => format!("expires in {} h", left / 3600),
        left => format!("expires in {} d", left / 86_400),
    }
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
    fn when_it_expires_is_told_from_now_on() {
        let check = |at, says: &str| assert_eq!(until(at, 1000), says);
        check(1000, "expired");
        check(7, "expired");
        check(1059, "expires in 59 s");
        check(1000 + 3599, "expires in 59 min");
        check(1000 + 86_399, "expires in 23 h");
        check(1000 + 7 * 86_400, "expires in 7 d");
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("12h"), Ok(Duration::from_secs(43_200)));
        for bad in ["", "h", "12", "-1d", "1w", "1é"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
