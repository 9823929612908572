//! Two hosts and the line between them, on one machine: a network namespace each, a device each whose packets a thread
//! of ours carries with the delay, rate and losses of [`Shape`]. The kernel's own delays (`netem`) are not in every
//! kernel.
//!
//! Nothing is left when the process ends, however it ends: the namespaces have no names.

mod carrier;
mod line;
#[allow(unsafe_code)]
mod sys;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use carrier::{Carrier, State};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

/// What a line does to packets.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// From one host to the other and back.
    pub round_trip: Duration,
    /// Bits a second in each direction; no limit if there is none.
    pub rate: Option<u64>,
    /// The part of all packets that is lost, between 0 and 1.
    pub loss: f64,
    /// Bytes of the largest packet.
    pub packet: u32,
    /// What decides which packets are lost.
    pub seed: u64,
}

impl Default for Shape {
    /// No delay, no limit, no losses, Ethernet's packets.
    fn default() -> Self {
        Self { round_trip: Duration::ZERO, rate: None, loss: 0.0, packet: 1500, seed: 0 }
    }
}

/// What could not be made.
#[derive(Debug, thiserror::Error)]
#[error("no network of two hosts: cannot {action}: {source}")]
pub struct NetworkError {
    action: String,
    source: io::Error,
}

/// What the line has carried so far, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets that arrived.
    pub packets: u64,
    /// Their bytes, with the headers of IP.
    pub bytes: u64,
    /// Packets that were lost: by chance, for want of room, or in a cut.
    pub lost: u64,
}

/// Two hosts and their line.
#[derive(Debug)]
pub struct Network {
    near: Host,
    far: Host,
    state: Arc<State>,
    _carrier: Carrier,
}

impl Network {
    /// Makes it. Needs root, or a user namespace in which the caller is root.
    pub fn new(shape: Shape) -> Result<Network, NetworkError> {
        let (near, near_device) = Host::new(Ipv4Addr::new(10, 99, 0, 1), shape.packet)?;
        let (far, far_device) = Host::new(Ipv4Addr::new(10, 99, 0, 2), shape.packet)?;
        let state = Arc::new(State::default());
        let carrier = Carrier::start(shape, [near_device, far_device], Arc::clone(&state))
            .map_err(|source| NetworkError { action: "start the line".to_owned(), source })?;
        Ok(Network { near, far, state, _carrier: carrier })
    }

    /// The host that [`Network::carried`] counts from.
    pub fn near(&self) -> &Host {
        &self.near
    }

    /// The other one.
    pub fn far(&self) -> &Host {
        &self.far
    }

    /// From now on nothing arrives, what is under way included; until [`Network::mend`].
    pub fn cut(&self) {
        self.state.set_cut(true);
    }

    /// Packets are carried again.
    pub fn mend(&self) {
        self.state.set_cut(false);
    }

    /// What was carried from the near host to the far one, and back.
    pub fn carried(&self) -> [Carried; 2] {
        self.state.carried()
    }
}

/// A host: a network of its own, in which nothing but the line's end is.
#[derive(Debug)]
pub struct Host {
    namespace: Arc<OwnedFd>,
    address: Ipv4Addr,
}

impl Host {
    /// A host, and its end of the line.
    fn new(address: Ipv4Addr, packet: u32) -> Result<(Host, File), NetworkError> {
        let problem = |action: &str| {
            let action = action.to_owned();
            move |source| NetworkError { action, source }
        };
        // A thread of its own has the new namespace only for as long as it takes to set it up.
        let made = std::thread::spawn(move || {
            sys::own_network().map_err(problem("make a network namespace"))?;
            let namespace = File::open("/proc/thread-self/ns/net").map_err(problem("open the network namespace"))?;
            let device = sys::tun("line").map_err(problem("make a device with /dev/net/tun"))?;
            // Without it neighbours are looked for by packets that nobody asked for.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
            let (address, packet) = (format!("{address}/24"), packet.to_string());
            ip(&["link", "set", "lo", "up"]).map_err(problem("set up the loopback device"))?;
            ip(&["address", "add", &address, "dev", "line"]).map_err(problem("give the line an address"))?;
            ip(&["link", "set", "line", "mtu", &packet, "txqueuelen", "10000", "up"])
                .map_err(problem("set up the line"))?;
            Ok((namespace, device))
        })
        .join();
        let (namespace, device) = made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((Host { namespace: Arc::new(namespace.into()), address }, device))
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A command that runs on this host (by util-linux' `nsenter`).
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let namespace = format!("--net=/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd());
        command.arg(namespace).arg("--").arg(program);
        command
    }

    /// Runs something on this host, in a thread of its own.
    pub fn run<R: Send + 'static>(
        &self,
        what: impl FnOnce() -> R + Send + 'static,
    ) -> std::thread::JoinHandle<io::Result<R>> {
        let namespace = Arc::clone(&self.namespace);
        std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(what())
        })
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim())))
}
