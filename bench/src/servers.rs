//! Servers that answer clients outside: how each is started, asked, and ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::figure::median;
use crate::inside::{command, output_of};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A server that runs; it is ended when dropped.
pub struct Server {
    child: Child,
}

impl Server {
    /// Starts `words` in `dir`.
    pub fn start(words: &[String], dir: &Path) -> Result<Server, String> {
        let mut job = command(words);
        job.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = job.spawn().map_err(|error| format!("cannot run {words:?}: {error}"))?;
        Ok(Server { child })
    }

    /// The first line that it prints.
    fn first_line(&mut self) -> Result<String, String> {
        let output = self.child.stdout.as_mut().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("the server said nothing: {error}"))?;
        Ok(line)
    }

    /// Waits until somebody can connect.
    fn await_port(&mut self, port: u16) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the server ended: {status}"));
            }
            if Instant::now() > end {
                return Err(format!("nobody listens on port {port}"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        drop(self.child.stdin.take());
        Command::new("kill").arg(self.child.id().to_string()).stderr(Stdio::null()).status()?;
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                self.child.kill()?;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("bench: a server could not be ended: {error}");
        }
    }
}

/// A port that nobody uses.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("no port: {error}"))?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}

/// How a server is started: with these words before it, in this directory.
pub struct Place<'a> {
    /// Nothing, or what runs it inside.
    pub prefix: &'a [String],
    /// Where its files are.
    pub dir: &'a Path,
}

impl Place<'_> {
    fn start(&self, words: &[&str]) -> Result<Server, String> {
        let words: Vec<String> =
            self.prefix.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect();
        Server::start(&words, self.dir)
    }
}

/// Where a command is, if it is installed.
pub fn find(name: &str, more: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(more.iter().map(PathBuf::from)).map(|dir| dir.join(name));
    places.into_iter().find(|file| file.is_file())
}

/// How long a server is asked. It runs for long, so that what it does at first is not measured.
#[derive(Clone, Copy)]
pub struct Time {
    /// Before the measurement.
    pub of_warm_up: Duration,
    /// What counts.
    pub measured: Duration,
}

/// The median time of a request to `answers.c`, milliseconds.
pub fn ping_pong(place: &Place, program: &str, time: Time) -> Result<f64, String> {
    let mut server = place.start(&[program, "log"])?;
    let port = server.first_line()?.trim().parse::<u16>().map_err(|error| format!("no port: {error}"))?;
    let mut client = TcpStream::connect(("127.0.0.1", port)).map_err(|error| format!("cannot connect: {error}"))?;
    client.set_nodelay(true).map_err(|error| error.to_string())?;
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < time.of_warm_up + time.measured {
        let start = Instant::now();
        let answered = client.write_all(b"x").and_then(|()| client.read_exact(&mut [0]));
        answered.map_err(|error| format!("no answer: {error}"))?;
        if start - began > time.of_warm_up {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(median(&times))
}

/// Who may run PostgreSQL: root may not.
pub fn as_postgres(words: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    if output_of(command(&["id".to_owned(), "-u".to_owned()])).is_ok_and(|id| id.trim() == "0") {
        all.extend(["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"].map(str::to_owned));
    }
    all.extend(words.iter().map(|word| (*word).to_owned()));
    all
}

/// Where Debian keeps its commands.
pub const POSTGRESQL: [&str; 1] = ["/usr/lib/postgresql/15/bin"];

/// PostgreSQL in `dir/data`, made beforehand and outside; `pgbench` with so many clients, one number after the
/// other. Transactions a second.
pub fn pgbench(place: &Place, clients: &[u32], time: Time) -> Result<Vec<f64>, String> {
    let tool = |name: &str| find(name, &POSTGRESQL).map(|file| file.display().to_string());
    let (Some(initdb), Some(postgres), Some(pgbench)) = (tool("initdb"), tool("postgres"), tool("pgbench")) else {
        return Err("no PostgreSQL: install postgresql-15".to_owned());
    };
    if !as_postgres(&[]).is_empty() {
        output_of(command(&["chown".to_owned(), "postgres".to_owned(), place.dir.display().to_string()]))?;
    }
    let data = place.dir.join("data").display().to_string();
    output_of(command(&as_postgres(&[&initdb, "-D", &data, "-A", "trust", "--no-sync", "-U", "postgres"])))?;
    let port = free_port()?;
    let port = port.to_string();
    let sockets = place.dir.display().to_string();
    let words = as_postgres(&[&postgres, "-D", &data, "-p", &port, "-k", &sockets, "-c", "listen_addresses=127.0.0.1"]);
    let mut server = place.start(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    server.await_port(port.parse().unwrap_or_default())?;
    let asked = |words: &[&str]| {
        let common = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres"];
        let mut job = Command::new(&pgbench);
        job.args(common).args(words).arg("postgres");
        output_of(job)
    };
    // It takes connections before it answers.
    let end = Instant::now() + PATIENCE;
    let mut made = asked(&["-i", "-q"]);
    while made.as_ref().is_err_and(|problem| problem.contains("starting up")) && Instant::now() < end {
        std::thread::sleep(PAUSE);
        made = asked(&["-i", "-q"]);
    }
    made?;
    let run = |clients: u32, time: Duration| {
        let seconds = time.as_secs().to_string();
        asked(&["-c", &clients.to_string(), "-j", &clients.min(2).to_string(), "-T", &seconds])
    };
    let rates = clients.iter().map(|&clients| {
        run(clients, time.of_warm_up)?;
        let said = run(clients, time.measured)?;
        let tps = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        tps.ok_or_else(|| format!("pgbench said {said:?}"))
    });
    rates.collect()
}

/// redis with `appendfsync always`; `redis-benchmark` with so many clients, one number after the other. Sets a
/// second.
pub fn redis(place: &Place, clients: &[u32], time: Time) -> Result<Vec<f64>, String> {
    let port = free_port()?.to_string();
    let mut server = place.start(&[
        "redis-server",
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ])?;
    server.await_port(port.parse().unwrap_or_default())?;
    let run = |clients: u32, requests: f64| -> Result<f64, String> {
        let mut job = Command::new("redis-benchmark");
        let requests = format!("{requests:.0}");
        job.args(["-p", &port, "-t", "set", "--csv", "-c", &clients.to_string(), "-n", &requests]);
        let said = output_of(job)?;
        let line = said.lines().find(|line| line.starts_with("\"SET\"")).unwrap_or_default();
        let rate = line.split(',').nth(1).and_then(|field| field.trim_matches('"').parse().ok());
        rate.ok_or_else(|| format!("redis-benchmark said {said:?}"))
    };
    let rates = clients.iter().map(|&clients| {
        // It takes a number of requests and no time: a first few say how many those are.
        let rate = run(clients, 1_000.0)?;
        let rate = run(clients, rate * time.of_warm_up.as_secs_f64())?;
        run(clients, rate * time.measured.as_secs_f64())
    });
    rates.collect()
}

/// nginx with an access log in `dir/log`; requests on one connection. Requests a second.
pub fn nginx(place: &Place, time: Time) -> Result<f64, String> {
    let nginx = find("nginx", &["/usr/sbin"]).ok_or("no nginx: install nginx-light")?.display().to_string();
    let port = free_port()?;
    let dir = place.dir.display();
    std::fs::create_dir(place.dir.join("log")).map_err(|error| format!("cannot make {dir}/log: {error}"))?;
    std::fs::write(place.dir.join("page"), "hello\n").map_err(|error| format!("cannot write {dir}/page: {error}"))?;
    let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let scratch: String = scratch.iter().map(|kind| format!("{kind}_temp_path {dir}/tmp-{kind};\n")).collect();
    let configuration = format!(
        "daemon off; master_process off; pid {dir}/pid; error_log {dir}/errors;\nevents {{}}\nhttp {{\n\
         access_log {dir}/log/access; keepalive_requests 1000000000;\n{scratch}\
         server {{ listen 127.0.0.1:{port}; root {dir}; }}\n}}\n"
    );
    let file = place.dir.join("nginx.conf");
    std::fs::write(&file, configuration).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let mut server = place.start(&[&nginx, "-c", &file.display().to_string()])?;
    server.await_port(port)?;
    ask_for_pages(port, time).map_err(|error| format!("nginx does not answer: {error}"))
}

fn ask_for_pages(port: u16, time: Time) -> std::io::Result<f64> {
    let client = TcpStream::connect(("127.0.0.1", port))?;
    client.set_nodelay(true)?;
    let mut answers = BufReader::new(client.try_clone()?);
    let mut client = client;
    let mut ask = |time: Duration| -> std::io::Result<f64> {
        let start = Instant::now();
        let mut count = 0u32;
        while start.elapsed() < time {
            client.write_all(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
            skip_answer(&mut answers)?;
            count += 1;
        }
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    };
    ask(time.of_warm_up)?;
    ask(time.measured)
}

/// Reads one answer with its contents.
fn skip_answer(answers: &mut impl BufRead) -> std::io::Result<()> {
    let mut len = 0;
    loop {
        let mut line = String::new();
        if answers.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            len = text.trim().parse().map_err(std::io::Error::other)?;
        }
        if line == "\r\n" {
            return answers.read_exact(&mut vec![0; len]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_contents() {
        let mut text = &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP"[..];
        skip_answer(&mut text).unwrap();
        assert_eq!(text, b"HTTP");
        assert!(skip_answer(&mut text).is_err());
    }
}
