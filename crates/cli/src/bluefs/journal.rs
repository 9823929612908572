//! What `speculator serve --log` tells on standard error.
//!
//! A thread of its own writes: whoever reads the lines may be slow, and the server does not wait for them. What there
//! was no room for is counted in the next line.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bluefs_server::{Guest, Note};
use serde_json::{Map, Value};

use super::args::LogFormat;

/// Lines that wait to be written.
const WAITING_MAX: usize = 1024;

/// Lines on their way.
pub struct Journal {
    lines: SyncSender<Map<String, Value>>,
    left_out: Arc<AtomicU64>,
}

impl Journal {
    /// Begins to write.
    pub fn begin(format: LogFormat) -> io::Result<Journal> {
        let (lines, waiting) = sync_channel::<Map<String, Value>>(WAITING_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let missing = left_out.clone();
        let write = move || {
            for mut line in waiting {
                let missing = missing.swap(0, Ordering::Relaxed);
                if missing > 0 {
                    line.insert("left_out".to_owned(), missing.into());
                }
                // Nobody may read it any more.
                let _ = io::stderr().write_all(written(&line, format).as_bytes());
            }
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(Journal { lines, left_out })
    }

    /// Tells this, as soon as there is room for it.
    pub fn note(&self, note: &Note) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        if self.lines.try_send(line(note, time)).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn line(note: &Note, time: f64) -> Map<String, Value> {
    let mut line = Map::new();
    let mut add = |name: &str, value: Value| _ = line.insert(name.to_owned(), value);
    add("time", (time * 1e3).round().into());
    let (event, peer, guest) = match note {
        Note::Connected { peer, guest } => ("connected", *peer, Some(guest)),
        Note::Disconnected { peer, guest, .. } => ("disconnected", *peer, Some(guest)),
        Note::Refused { peer, guest, .. } => ("refused", *peer, guest.as_ref()),
        Note::Full => ("full", None, None),
        Note::Stopping => ("stopping", None, None),
    };
    add("event", event.into());
    if let Some(peer) = peer {
        add("peer", peer.to_string().into());
    }
    if let Some(Guest { volume, invitation, epoch, read_only }) = guest {
        add("volume", volume.as_str().into());
        add("invitation", (*invitation).into());
        add("session_goes_on", (*epoch > 1).into());
        add("read_only", (*read_only).into());
    }
    match note {
        Note::Disconnected { after, .. } => add("after_s", after.as_secs_f64().into()),
        Note::Refused { why, text, .. } => {
            add("why", (*why).into());
            add("text", text.as_str().into());
        }
        Note::Connected { .. } | Note::Full | Note::Stopping => {}
    }
    line
}

fn written(line: &Map<String, Value>, format: LogFormat) -> String {
    match format {
        LogFormat::Json => Value::Object(line.clone()).to_string() + "\n",
        LogFormat::Text => {
            // Words as they are; what has spaces or is unusual in quotes.
            let word = |value: &Value| match value {
                Value::String(text) if text.chars().all(|c| c.is_ascii_graphic() && c != '"') => text.clone(),
                other => other.to_string(),
            };
            let words: Vec<String> = line.iter().map(|(name, value)| format!("{name}={}", word(value))).collect();
            words.join(" ") + "\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn guest() -> Guest {
        Guest { volume: "work".to_owned(), invitation: 3, epoch: 2, read_only: false }
    }

    #[test]
    fn lines_say_what_has_happened_to_whom() {
        let peer = "[::1]:7".parse().ok();
        let note = Note::Disconnected { peer, guest: guest(), after: Duration::from_millis(1500) };
        let text = written(&line(&note, 1.5), LogFormat::Json);
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let expected = serde_json::json!({ "time": 1500.0, "event": "disconnected", "peer": "[::1]:7", "volume": "work",
            "invitation": 3, "session_goes_on": true, "read_only": false, "after_s": 1.5 });
        assert_eq!(json, expected);
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn text_of_a_stranger_stays_within_its_line() {
        let text = "a \"b\"\nevent=connected \x1b[2J".to_owned();
        let note = Note::Refused { peer: None, guest: None, why: "protocol", text };
        let text = written(&line(&note, 0.0), LogFormat::Text);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains("why=protocol") && text.contains(r#"text="a \"b\"\nevent=connected \u001b[2J""#),
            "{text}"
        );
    }
}
