//! `speculator serve`.

use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use bluefs_net::Acceptor;
use bluefs_server::{identity_of, Access, Everybody, Invitations, Server};
use bluefs_store::{Opened, Rows, Store, StoreError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::ServeOptions;
use crate::error::{plain, Failure};
use crate::generate::print;

/// Serves until SIGINT or SIGTERM.
pub fn serve(options: ServeOptions) -> Result<u8, Failure> {
    let at = options.listen;
    if options.plain && !at.ip().is_loopback() {
        let why = "everybody who reaches it could do everything; use 127.0.0.1 or ::1";
        return Err(Failure::Bluefs(format!("cannot serve {at} with --plain: {why}")));
    }
    let failed = |error: StoreError| Failure::Bluefs(format!("cannot serve {}: {error}", options.store.display()));
    let Opened { mut store, notes } = Store::open_or_create(&options.store).map_err(failed)?;
    for note in notes {
        tell!("speculator: note: {}: {note}", options.store.display());
    }
    make_volumes(&mut store, &options.volumes).map_err(failed)?;
    let io = |what: &str, error: std::io::Error| Failure::Bluefs(format!("cannot {what}: {}", plain(&error)));
    let listener = TcpListener::bind(at).map_err(|error| io(&format!("listen at {at}"), error))?;
    let at = listener.local_addr().map_err(|error| io("listen", error))?;
    let mut server = Server::new(store).map_err(|error| Failure::Bluefs(error.to_string()))?;
    options.lease_term.into_iter().for_each(|term| server.set_term(term));
    options.lease_pause.into_iter().for_each(|pause| server.set_quiet(pause));
    let stopper = server.stopper();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| io("wait for signals", error))?;
    std::thread::spawn(move || {
        signals.forever().next();
        stopper.stop();
    });
    let (acceptor, access): (_, Box<dyn Access>) = if options.plain {
        (None, Box::new(Everybody))
    } else {
        let identity = identity_of(&options.store).map_err(|error| io("read the server's key", error))?;
        let acceptor = Acceptor::new(&identity).map_err(|error| io("use the server's key", error))?;
        (Some(acceptor), Box::new(Invitations::of(&options.store)))
    };
    print(&format!("serving {} at bluefs://{at}\n", options.store.display()))?;
    server.run(listener, acceptor, &*access).map_err(|error| Failure::Bluefs(error.to_string()))?;
    Ok(0)
}

fn make_volumes(store: &mut Store, names: &[String]) -> Result<(), StoreError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
    let default = "default".to_owned();
    let wanted = names.iter().chain([&default]);
    store.batch(|batch| {
        wanted.into_iter().try_for_each(|name| match batch.volume(name.as_bytes())? {
            Some(_) => Ok(()),
            None => batch.create_volume(name.as_bytes(), bluefs::Time(now)).map(|_| ()),
        })
    })
}
