//! `speculator serve`.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bluefs_net::Acceptor;
use bluefs_server::{identity_of, Access, Everybody, Invitations, Note, Server};
use bluefs_store::{Opened, Rows, Store, StoreError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::{Quota, ServeOptions};
use super::journal::Journal;
use super::{advice, metrics, status};
use crate::error::{without_numbers, Failure};
use crate::generate::print_done;

/// The volume that each store has.
const DEFAULT: &str = "default";
/// The file that each store has.
const STATE: &str = "state";

/// A connection has three descriptors, and shells start programs with few.
fn raise_descriptors() {
    use rustix::process::{getrlimit, setrlimit, Resource};
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, it stays as it was.
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

/// Serves until SIGINT or SIGTERM.
pub fn serve(options: ServeOptions) -> Result<u8, Failure> {
    let at = options.listen;
    if options.plain && !at.ip().is_loopback() {
        let why = "everybody who reaches it could do everything; use 127.0.0.1 or ::1";
        return Err(Failure::Bluefs(format!("cannot serve {at} with --plain: {why}")));
    }
    raise_descriptors();
    // Whatever can be found wrong before a store is made is found here.
    let listen = |at: SocketAddr| TcpListener::bind(at).map_err(|error| advice::listening(&at.to_string(), &error));
    let (listener, for_metrics) = (listen(at)?, options.metrics.map(listen).transpose()?);
    let at = listener.local_addr().map_err(|error| advice::listening(&at.to_string(), &error))?;
    let shown = options.store.display().to_string();
    let io = |what: &str, error: std::io::Error| {
        let otherwise = "see the directory's owner, and the kernel log";
        advice::failed(&format!("serve {shown}: cannot {what}"), &error, otherwise)
    };
    let is_there = options.store.join(STATE).exists();
    let is_made = |volume: &String| volume == DEFAULT || options.volumes.contains(volume);
    if let Some(quota) = options.quotas.iter().find(|quota| !is_there && !is_made(&quota.volume)) {
        return Err(no_volume(&quota.volume));
    }
    let failed = |error: StoreError| advice::store(&format!("serve {shown}"), &error);
    let Opened { mut store, notes } = Store::open_or_create(&options.store).map_err(failed)?;
    for note in notes {
        tell!("speculator: note: {}: {note}", options.store.display());
    }
    make_volumes(&mut store, &options.volumes).map_err(failed)?;
    options.quotas.iter().try_for_each(|quota| set_quota(&mut store, quota))?;
    let mut server = Server::new(store).map_err(|error| advice::server(&shown, &error))?;
    options.lease_term.into_iter().for_each(|term| server.set_term(term));
    options.lease_pause.into_iter().for_each(|pause| server.set_quiet(pause));
    let stopper = server.stopper();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| io("wait for signals", error))?;
    let wait = move || {
        signals.forever().next();
        stopper.stop();
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(|error| io("start a thread", error))?;
    let (acceptor, access) = match options.plain {
        true => (None, Box::new(Everybody) as Box<dyn Access + Send + Sync>),
        false => invited(&options.store, io)?,
    };
    if let Some(listener) = for_metrics {
        let answered = metrics::answer(listener, server.gauge());
        let answered = answered.map_err(|error| io("answer who asks for metrics", error))?;
        tell!("speculator: metrics at http://{answered}/metrics");
    }
    let journal = options.log.map(Journal::begin).transpose().map_err(|error| io("start a thread", error))?;
    let store = shown.clone();
    server.set_note(move |note| {
        tell_note(&store, &note);
        journal.iter().for_each(|journal| journal.note(&note));
    });
    let address = format!("bluefs://{at}");
    // Without it the server is only not shown.
    let _ = status::serve_server(server.gauge(), address.clone(), &options.store);
    print_done(&format!("serving {} at {address}\n", options.store.display()))?;
    tell_manager("READY=1");
    server.run(listener, acceptor, access).map_err(|error| advice::server(&shown, &error))?;
    Ok(0)
}

/// How clients connect that have an invitation, and who has one. `failed` says what failed.
#[allow(clippy::type_complexity, reason = "what the server takes")]
fn invited(
    store: &Path,
    failed: impl Fn(&str, std::io::Error) -> Failure,
) -> Result<(Option<Acceptor>, Box<dyn Access + Send + Sync>), Failure> {
    let identity = identity_of(store).map_err(|error| failed("read the server's key", error))?;
    let acceptor = Acceptor::new(&identity).map_err(|error| failed("use the server's key", error))?;
    let invitations =
        Invitations::of(store).telling(|why| tell!("speculator: {}; nobody is let in", without_numbers(why)));
    Ok((Some(acceptor), Box::new(invitations)))
}

/// What everybody is told of the server, with a journal or without.
fn tell_note(store: &str, note: &Note) {
    match note {
        Note::Stopping => tell_manager("STOPPING=1"),
        Note::Full => {
            let advice = "make room there, or raise its quota";
            tell!("speculator: the disk of {store} is full: changes are refused until there is room; {advice}");
        }
        _ => {}
    }
}

fn make_volumes(store: &mut Store, names: &[String]) -> Result<(), StoreError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
    let wanted = names.iter().map(String::as_str).chain([DEFAULT]);
    store.batch(|batch| {
        wanted.into_iter().try_for_each(|name| match batch.volume(name.as_bytes())? {
            Some(_) => Ok(()),
            None => batch.create_volume(name.as_bytes(), bluefs::Time(now)).map(|_| ()),
        })
    })
}

fn set_quota(store: &mut Store, Quota { volume, bytes }: &Quota) -> Result<(), Failure> {
    let failed = |error: StoreError| advice::store(&format!("set the quota of {volume}"), &error);
    let found = store.batch(|batch| match batch.volume(volume.as_bytes())? {
        Some(id) => batch.set_quota(id, *bytes, u64::MAX).map(|()| true),
        None => Ok(false),
    });
    match found.map_err(failed)? {
        true => Ok(()),
        false => Err(no_volume(volume)),
    }
}

fn no_volume(volume: &str) -> Failure {
    Failure::Bluefs(format!("cannot set a quota: there is no volume {volume}; make it with --volume {volume}"))
}

/// Tells the service manager that has started this process, if one has (sd_notify(3)).
fn tell_manager(what: &str) {
    let Some(at) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    // A manager that is not there any more does not want to know.
    let _ = match at.to_string_lossy().strip_prefix('@') {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name);
            address.and_then(|address| socket.send_to_addr(what.as_bytes(), &address))
        }
        None => socket.send_to(what.as_bytes(), at),
    };
}
