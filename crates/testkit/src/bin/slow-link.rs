//! Runs a command on a host whose only network is a slow line to a second host, and perhaps a server there. The
//! variable `SERVER` has the second host's address. The exit status is the command's.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitCode};
use std::time::Duration;

use clap::Parser;
use rustix::process::{kill_process_group, waitid, Pid, Signal, WaitId, WaitIdOptions};
use testkit::network::{Network, Shape};

/// Runs a command at the other end of a slow line
#[derive(Parser)]
struct Args {
    /// Milliseconds from one host to the other and back
    #[arg(long, value_name = "MS", default_value_t = 30.0, value_parser = not_negative)]
    rtt: f64,
    /// Megabits a second in each direction; no limit when left out
    #[arg(long, value_name = "MBIT", value_parser = not_negative)]
    rate: Option<f64>,
    /// Packets of a hundred that are lost
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = not_negative)]
    loss: f64,
    /// What decides which packets are lost
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Bytes of the largest packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
        value_parser = clap::value_parser!(u32).range(576..=65_000))]
    packet: u32,
    /// Seconds between the ends of cuts, and how long each takes
    #[arg(long, value_name = "EVERY:FOR", value_parser = cuts)]
    cut: Option<(f64, f64)>,
    /// A shell command that runs on the second host for as long as COMMAND runs
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Say at the end what was carried
    #[arg(long)]
    stats: bool,
    /// What runs on the first host
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && number >= 0.0 {
        Ok(number)
    } else {
        Err("not a number from 0 on".to_owned())
    }
}

fn cuts(text: &str) -> Result<(f64, f64), String> {
    let (every, length) = text.split_once(':').ok_or("two numbers of seconds, as in 10:1")?;
    Ok((not_negative(every)?, not_negative(length)?))
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(status) => ExitCode::from(status),
        Err(problem) => {
            eprintln!("slow-link: {problem}");
            ExitCode::from(125)
        }
    }
}

fn run(args: &Args) -> Result<u8, Box<dyn std::error::Error>> {
    let network = Network::new(Shape {
        round_trip: Duration::from_secs_f64(args.rtt / 1000.0),
        rate: args.rate.map(|rate| (rate * 1e6) as u64),
        loss: args.loss / 100.0,
        packet: args.packet,
        seed: args.seed,
    })?;
    let _server = args.server.as_ref().map(|command| Server::start(&network, command)).transpose()?;
    let (program, arguments) = args.command.split_first().ok_or("no command")?;
    let mut command = network.near().command(program);
    command.args(arguments).env("SERVER", network.far().address().to_string());
    let mut child = command.spawn().map_err(|error| format!("cannot start nsenter (util-linux): {error}"))?;
    let status = match args.cut {
        None => child.wait()?,
        Some((every, length)) => wait_with_cuts(&mut child, &network, every, length)?,
    };
    if args.stats {
        let [there, back] = network.carried();
        for (name, carried) in [("to the server", there), ("back", back)] {
            eprintln!("slow-link: {name}: {} packets, {} bytes, {} lost", carried.packets, carried.bytes, carried.lost);
        }
    }
    // As a shell says it.
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(125);
    Ok(u8::try_from(code).unwrap_or(125))
}

fn wait_with_cuts(
    child: &mut Child,
    network: &Network,
    every: f64,
    length: f64,
) -> std::io::Result<std::process::ExitStatus> {
    loop {
        for (cut, seconds) in [(false, every), (true, length)] {
            if cut {
                network.cut();
            }
            let end = std::time::Instant::now() + Duration::from_secs_f64(seconds);
            while std::time::Instant::now() < end {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            network.mend();
        }
    }
}

/// The server and all that it starts, in a process group that ends with this.
struct Server(Child);

impl Server {
    fn start(network: &Network, command: &str) -> Result<Server, String> {
        let mut shell = network.far().command("sh");
        shell.args(["-c", command]).env("SERVER", network.far().address().to_string()).process_group(0);
        shell.spawn().map(Server).map_err(|error| format!("cannot start nsenter (util-linux): {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process_group(group, Signal::TERM);
            let end = std::time::Instant::now() + Duration::from_secs(2);
            // The shell is not reaped before the last signal: until then nobody else gets the group's number.
            let ended = || {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                !matches!(waitid(WaitId::Pid(group), options), Ok(None))
            };
            while !ended() && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.0.wait();
        }
    }
}
