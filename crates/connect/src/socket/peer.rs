//! Connecting to peers, accepting them, and stopping the threads that wait for them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{SocketOptions, alive};
use crate::{ConnectError, listeners};

/// How long one address may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A pause after accepting has failed (no free file descriptor), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often is looked for peers that have been silent for too long: a quarter of that time, within these bounds.
const SILENCE_CHECK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// A thread that moves bytes needs little stack.
const STACK_BYTES: usize = 256 << 10;

/// The open connections of a reader or writer. Threads that wait for a peer cannot be
/// interrupted; closing their connections under them has the same effect.
#[derive(Default)]
pub struct Peers {
    state: Mutex<PeersState>,
    stopped: Condvar,
}

#[derive(Default)]
struct PeersState {
    streams: HashMap<u64, TcpStream>,
    stopped: bool,
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, PeersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection.
    ///
    /// # Errors
    /// The process has no file descriptor left, or everything has been stopped.
    pub fn add(&self, peer: u64, stream: &TcpStream) -> io::Result<()> {
        let stream = stream.try_clone()?;
        let mut state = self.lock();
        if state.stopped {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.streams.insert(peer, stream);
        Ok(())
    }

    /// Forgets a connection.
    pub fn remove(&self, peer: u64) {
        self.lock().streams.remove(&peer);
    }

    /// Closes one connection under the thread that uses it.
    pub fn cut(&self, peer: u64) {
        if let Some(stream) = self.lock().streams.get(&peer) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes the connections on which nothing has come for so long, and forgets them. Gives their number.
    fn cut_silent(&self, limit: Duration) -> u64 {
        let mut state = self.lock();
        let before = state.streams.len();
        state.streams.retain(|_, stream| {
            let silent = alive::silence(stream).is_some_and(|silence| silence >= limit);
            if silent {
                let _ = stream.shutdown(Shutdown::Both);
            }
            !silent
        });
        (before - state.streams.len()) as u64
    }

    /// Closes all connections, now and in future, and ends pauses.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        for stream in state.streams.values() {
            // Fails only if the peer was quicker.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        self.stopped.notify_all();
    }

    /// Whether [`Peers::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn count(&self) -> usize {
        self.lock().streams.len()
    }

    /// Waits for that long; false if stopped before.
    pub fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.lock();
        while !state.stopped {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.stopped.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

/// Stops all connections when it is dropped.
pub struct StopOnDrop(pub Arc<Peers>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Connects once.
///
/// # Errors
/// The host is unknown or nobody answers.
pub fn connect_once(options: &SocketOptions) -> Result<TcpStream, ConnectError> {
    let place = options.place();
    let doing = format!("connecting to {place}");
    let addresses = (options.hostname.as_str(), options.port).to_socket_addrs().map_err(|e| ConnectError::io(&doing, &e))?;
    let mut last = ConnectError::new(format!("{doing}: the host has no address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                // Rows are small and somebody waits for them.
                let ready = stream.set_nodelay(true).and_then(|()| alive::keep_alive(&stream));
                ready.map_err(|e| ConnectError::io(&doing, &e))?;
                return Ok(stream);
            }
            Err(e) => last = ConnectError::new(format!("{doing}: {e}; check that a peer listens there, or set 'reconnect.attempts'")),
        }
    }
    Err(last)
}

/// Connects, trying again as the options say. `again` if there was a connection before: then it
/// waits before the first attempt too.
///
/// # Errors
/// The last attempt's, or that all was stopped.
pub fn connect(options: &SocketOptions, peers: &Peers, again: bool) -> Result<TcpStream, ConnectError> {
    let attempts = options.reconnect_attempts as u64 + !again as u64;
    let mut last = ConnectError::new(format!("the connection to {} was closed", options.place()));
    for attempt in 0..attempts {
        if (again || attempt > 0) && !peers.pause(options.reconnect_backoff) {
            return Err(ConnectError::new(format!("connecting to {}: the job is being stopped", options.place())));
        }
        match connect_once(options) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = ConnectError::new(format!("{e} (attempt {} of {attempts})", attempt + 1)),
        }
    }
    Err(last)
}

/// Listens where the options say.
///
/// # Errors
/// The address is taken or not ours.
pub fn listen(options: &SocketOptions) -> Result<TcpListener, ConnectError> {
    TcpListener::bind((options.hostname.as_str(), options.port))
        .map_err(|e| ConnectError::new(format!("listening on {}: {e}; choose another 'port' or 'hostname'", options.place())))
}

/// Starts a thread that waits for peers.
///
/// # Errors
/// The operating system gives no thread.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ConnectError> {
    let thread = thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
    thread.spawn(run).map_err(|e| ConnectError::io(format_args!("starting the thread '{name}'"), &e))
}

/// Accepts peers in a thread of its own until it is dropped. Its connections are closed then.
pub struct Acceptor {
    peers: Arc<Peers>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Accepts up to `connections_max` peers at once; each is registered in `peers` and given, with
    /// its number and `host:port`, to `on_peer`.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(
        listener: TcpListener,
        peers: Arc<Peers>,
        connections_max: usize,
        mut on_peer: impl FnMut(u64, TcpStream, String) + Send + 'static,
    ) -> Result<Self, ConnectError> {
        let address = listener.local_addr().map_err(|e| ConnectError::io("listening", &e))?;
        let shared = peers.clone();
        let thread = spawn("tidemill-accept", move || {
            for peer in 0u64.. {
                match listener.accept() {
                    _ if shared.is_stopped() => return,
                    // Turned away: the connection closes at once.
                    Ok(_) if shared.count() >= connections_max => listeners::turned_away(address),
                    Ok((stream, place)) => {
                        let ready = stream.set_nodelay(true).and_then(|()| alive::keep_alive(&stream));
                        match ready.and_then(|()| shared.add(peer, &stream)) {
                            Ok(()) => on_peer(peer, stream, place.to_string()),
                            Err(_) => listeners::turned_away(address),
                        }
                    }
                    Err(_) => {
                        if !shared.pause(ACCEPT_PAUSE) {
                            return;
                        }
                    }
                }
            }
        })?;
        Ok(Acceptor { peers, address, thread: Some(thread) })
    }

    /// From now on cuts off peers from which nothing has come for so long; without a limit nobody.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn cutting_silent(self, limit: Option<Duration>) -> Result<Self, ConnectError> {
        if let Some(limit) = limit {
            let (peers, address) = (self.peers.clone(), self.address);
            let check = (limit / 4).clamp(SILENCE_CHECK.0, SILENCE_CHECK.1);
            spawn("tidemill-silence", move || {
                while peers.pause(check) {
                    match peers.cut_silent(limit) {
                        0 => {}
                        cut => listeners::silent(address, cut),
                    }
                }
            })?;
        }
        Ok(self)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.peers.stop();
        // accept() returns for nothing but a connection, so it gets one; then the port is free again.
        let mut address = self.address;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
