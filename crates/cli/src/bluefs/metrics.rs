//! `speculator serve --metrics`: what Prometheus reads.
//!
//! One request after the other is answered, each within two seconds: whoever says nothing keeps others waiting for so
//! long.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bluefs_server::{Figures, Gauge, VolumeFigures};
use rustix::time::{clock_gettime, ClockId};

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a request may be.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Answers there until the process ends. Says at which address that is.
pub fn answer(listener: TcpListener, gauge: Gauge) -> io::Result<SocketAddr> {
    let at = listener.local_addr()?;
    let answer = move || {
        for socket in listener.incoming() {
            match socket {
                // Whoever went away meanwhile does not want to know.
                Ok(socket) => _ = serve(socket, &gauge),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(answer)?;
    Ok(at)
}

fn serve(mut socket: TcpStream, gauge: &Gauge) -> io::Result<()> {
    let (end, mut request, mut bytes) = (Instant::now() + PATIENCE, Vec::new(), [0; 1024]);
    socket.set_write_timeout(Some(PATIENCE))?;
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left))?;
        let len = socket.read(&mut bytes)?;
        request.extend(&bytes[..len]);
        if len == 0 || request.len() > REQUEST_BYTES_MAX || Instant::now() > end {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let is_known = line.starts_with(b"GET /metrics ") || line.starts_with(b"GET /metrics?");
    let (status, body) = match is_known {
        true => ("200 OK", text(&gauge.look())),
        false => ("404 Not Found", "there is /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes())
}

/// All figures, in Prometheus' text format.
pub fn text(figures: &Figures) -> String {
    let mut all = Metrics(String::new());
    all.one("bluefs_up_seconds", "gauge", "How long the server has been running.", figures.up.as_secs_f64());
    all.one("bluefs_connections", "gauge", "Clients that are connected.", figures.connections as f64);
    all.one("bluefs_messages_total", "counter", "Messages of clients.", figures.messages as f64);
    all.one("bluefs_replies_total", "counter", "Messages to clients.", figures.replies as f64);
    let what = "Bytes that clients have sent, encryption included, handshakes not.";
    all.one("bluefs_received_bytes_total", "counter", what, figures.received_bytes as f64);
    let what = "Bytes that were sent to clients, encryption included, handshakes not.";
    all.one("bluefs_sent_bytes_total", "counter", what, figures.sent_bytes as f64);
    all.one("bluefs_unsent_bytes", "gauge", "Bytes that wait for clients to read them.", figures.unsent_bytes as f64);
    let what = "Turns in which something was decided and made durable: their number, and the time that they took.";
    all.head("bluefs_turn_seconds", "summary", what);
    all.line("bluefs_turn_seconds_sum", &[], figures.turn_time.as_secs_f64());
    all.line("bluefs_turn_seconds_count", &[], figures.turns as f64);
    let what = "The longest turn since the start.";
    all.one("bluefs_turn_seconds_max", "gauge", what, figures.turn_time_max.as_secs_f64());
    all.one("bluefs_log_bytes", "gauge", "Bytes of the newest segment of the log.", figures.log_bytes as f64);
    all.head("bluefs_refused_total", "counter", "Whom the server has not let in, or has disconnected, by the reason.");
    for (why, count) in &figures.refused {
        all.line("bluefs_refused_total", &[("why", why)], *count as f64);
    }
    for (name, kind, what, value) in OF_VOLUMES {
        all.head(name, kind, what);
        for volume in &figures.volumes {
            // What has no bound has no line.
            if let Some(value) = value(volume) {
                all.line(name, &[("volume", &volume.name)], value);
            }
        }
    }
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let spent_s = spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9;
    all.one("process_cpu_seconds_total", "counter", "Processor time of the server.", spent_s);
    if let Some(resident) = resident_bytes() {
        all.one("process_resident_memory_bytes", "gauge", "Memory of the server.", resident);
    }
    all.0
}

type OfVolume = (&'static str, &'static str, &'static str, fn(&VolumeFigures) -> Option<f64>);

const OF_VOLUMES: [OfVolume; 10] = [
    ("bluefs_volume_commits_total", "counter", "Commits since the volume was made.", |v| Some(v.commits as f64)),
    ("bluefs_volume_sessions", "gauge", "Sessions, also of clients that are away.", |v| Some(v.sessions as f64)),
    ("bluefs_volume_connections", "gauge", "Sessions that have a connection.", |v| Some(v.connected as f64)),
    ("bluefs_volume_leases", "gauge", "Leases of all sessions.", |v| Some(v.leases as f64)),
    ("bluefs_volume_locks", "gauge", "Locks of all sessions.", |v| Some(v.locks as f64)),
    ("bluefs_volume_nameless_files", "gauge", "Files without a name that may be open.", |v| Some(v.nameless as f64)),
    ("bluefs_volume_waiting", "gauge", "Sessions whose change waits for leases.", |v| Some(v.waiting as f64)),
    ("bluefs_volume_used_bytes", "gauge", "Bytes of blocks.", |v| Some(v.space.used_bytes as f64)),
    ("bluefs_volume_quota_bytes", "gauge", "Bytes that it may have.", |v| bound(v.space.max_bytes)),
    ("bluefs_volume_inodes", "gauge", "Files, directories and others.", |v| Some(v.space.used_inodes as f64)),
];

fn bound(max: u64) -> Option<f64> {
    (max != u64::MAX).then_some(max as f64)
}

fn resident_bytes() -> Option<f64> {
    let kib: u64 = procfs::Status::of(procfs::ProcessId::own()).ok()?.number("VmRSS", 0).ok()?;
    Some(kib as f64 * 1024.0)
}

struct Metrics(String);

impl Metrics {
    fn head(&mut self, name: &str, kind: &str, what: &str) {
        // INVARIANT: writing to a string does not fail.
        writeln!(self.0, "# HELP {name} {what}\n# TYPE {name} {kind}").expect("a string");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let quoted = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "{name}{labels} {value}").expect("a string");
    }

    fn one(&mut self, name: &str, kind: &str, what: &str, value: f64) {
        self.head(name, kind, what);
        self.line(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use bluefs::tree::Space;

    use super::*;

    fn volume(name: &str, max_bytes: u64) -> VolumeFigures {
        let space = Space { max_bytes, used_bytes: 1 << 40, ..Space::fresh() };
        let (name, sessions, connected, leases) = (name.to_owned(), 3, 2, 40);
        let (locks, nameless, waiting, commits) = (1, 0, 0, 12);
        VolumeFigures { name, sessions, connected, leases, locks, nameless, waiting, commits, space }
    }

    #[test]
    fn each_line_is_a_comment_or_a_number_and_each_name_is_told_once() {
        let volumes = vec![volume("default", u64::MAX), volume("work", 1 << 41)];
        let refused = [("volume", 7)].into();
        let text = text(&Figures { connections: 2, volumes, refused, ..Figures::default() });
        let mut told = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                told.push(rest.split(' ').next().expect("a name"));
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let (name, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite) && !value.contains('e'), "{line}");
            let name = name.split('{').next().expect("a name");
            assert!(told.iter().any(|told| name.starts_with(told)), "{line}");
        }
        let count = told.len();
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len(), count);
        for line in [
            "bluefs_connections 2",
            "bluefs_refused_total{why=\"volume\"} 7",
            "bluefs_volume_leases{volume=\"work\"} 40",
            "bluefs_volume_used_bytes{volume=\"default\"} 1099511627776",
            "bluefs_volume_quota_bytes{volume=\"work\"} 2199023255552",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("quota_bytes{volume=\"default\"}"), "{text}");
    }
}
