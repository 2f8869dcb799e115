//! What all tables that listen have in common: who may reach them, and what they have turned away or given up, by
//! address. The latter concerns peers that no table or stream knows of, so nobody else would count it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::ConnectError;

/// Refuses to listen where other machines reach it, unless that is wanted (`insecure`): what tables listen to is not
/// encrypted, and whoever reaches the port can send rows, or gets them.
///
/// # Errors
/// `host` has an address that is not of this machine alone. A host that is unknown is no error here.
pub fn check_exposed(host: &str, port: u16, insecure: bool) -> Result<(), ConnectError> {
    let Ok(addresses) = (host, port).to_socket_addrs() else { return Ok(()) };
    if insecure || addresses.map(|address| address.ip().to_canonical()).all(|ip| ip.is_loopback()) {
        return Ok(());
    }
    Err(ConnectError::new(format!(
        "option 'hostname' = '{host}': other machines reach this address, and nothing on it is encrypted; listen on 127.0.0.1 behind \
         a tunnel or a proxy with TLS, or set 'listen.insecure' = 'true' if everybody on that network may read and send rows"
    )))
}

/// Whether a host is this machine, by a name or an address that nobody else can be given: of a page, whether it is one of ours.
pub fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = bare.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What a listener has refused since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListenerStats {
    /// Connections turned away: there were as many as are taken, or no thread or file for another, or no memory for its frame.
    pub turned_away: u64,
    /// Connections closed because nothing had come for too long.
    pub silent: u64,
    /// Requests and handshakes that were answered with a refusal, or were none: without a token, for a path that no table
    /// reads, with a body that is not taken.
    pub refused: u64,
}

/// By the address that is listened on; one that has refused nothing is not there.
static LISTENERS: Mutex<BTreeMap<SocketAddr, ListenerStats>> = Mutex::new(BTreeMap::new());

fn lock() -> MutexGuard<'static, BTreeMap<SocketAddr, ListenerStats>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a connection that was turned away.
pub fn turned_away(address: SocketAddr) {
    lock().entry(address).or_default().turned_away += 1;
}

/// Counts connections that were closed because nothing came.
pub fn silent(address: SocketAddr, connections: u64) {
    lock().entry(address).or_default().silent += connections;
}

/// Counts a request or a handshake that was refused.
pub fn refused(address: SocketAddr) {
    lock().entry(address).or_default().refused += 1;
}

/// The listeners that have refused something: `host:port` and what.
pub fn stats() -> BTreeMap<String, ListenerStats> {
    lock().iter().map(|(address, stats)| (address.to_string(), *stats)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, exposed: bool) {
        assert_eq!(check_exposed(host, 1, false).is_err(), exposed, "{host}");
        check_exposed(host, 1, true).unwrap();
    }

    #[test]
    fn addresses_that_others_reach() {
        for host in ["127.0.0.1", "localhost", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            check(host, false);
        }
        for host in ["0.0.0.0", "::", "10.0.0.1", "192.168.1.7", "::ffff:10.0.0.1"] {
            check(host, true);
        }
        let error = check_exposed("0.0.0.0", 1, false).unwrap_err().to_string();
        assert!(error.contains("'hostname' = '0.0.0.0'") && error.contains("'listen.insecure' = 'true'"), "{error}");
    }
}
