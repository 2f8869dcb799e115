//! Sockets that a worker waits for itself while it sleeps, and the bell that wakes it from that.
//!
//! Otherwise a thread waits for a socket and wakes the worker, which costs two switches for each message and
//! a core that somebody else may need. What is read from the sockets is the business of the readers
//! that want them waited for ([`Reader::wait_on`](crate::Reader::wait_on)).

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_block::clock;

/// Who has slept was away for longer than this, ns. What is found sooner may have been there before.
const SLEPT_NS: u64 = 3_000;

/// What is known of a socket that is waited for; times are those of [`clock::now_ns`].
#[derive(Default)]
pub struct Watched {
    /// Since when there may be something to read, at the earliest; 0 if nothing is known to be there.
    since_ns: AtomicU64,
    /// When somebody last looked: at the socket while nothing was there, or into it.
    seen_ns: AtomicU64,
}

impl Watched {
    /// Nothing is known of the socket; somebody has just looked.
    pub fn new() -> Self {
        Watched { since_ns: AtomicU64::new(0), seen_ns: AtomicU64::new(clock::now_ns()) }
    }

    /// There may be something to read, since then at the earliest.
    pub fn note(&self, since_ns: u64) {
        if self.since_ns.load(Ordering::Relaxed) == 0 {
            self.since_ns.store(since_ns.max(1), Ordering::Relaxed);
        }
    }

    /// Whether there may be something to read.
    pub fn is_noted(&self) -> bool {
        self.since_ns.load(Ordering::Relaxed) > 0
    }

    /// Since when there may be something to read, if there may be; then nothing is known any more.
    pub fn take(&self) -> Option<u64> {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        if since_ns > 0 {
            self.since_ns.store(0, Ordering::Relaxed);
        }
        (since_ns > 0).then_some(since_ns)
    }

    /// Somebody looks, now.
    pub fn look(&self, now_ns: u64) {
        self.seen_ns.store(now_ns, Ordering::Relaxed);
    }

    /// When somebody last looked.
    pub fn seen_ns(&self) -> u64 {
        self.seen_ns.load(Ordering::Relaxed)
    }
}

/// The sockets that a worker waits for. Few: each costs some 50 ns each time, or some microseconds where the worker drives others, too.
#[derive(Default)]
pub struct Sockets {
    polled: Vec<libc::pollfd>,
    watched: Vec<Arc<Watched>>,
}

impl Sockets {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.polled.clear();
        self.watched.clear();
    }

    /// One more, of which `watched` shall tell. A descriptor that is closed before the wait is over does
    /// no harm: what it says is taken for a sign that something may be there, and no more.
    pub fn add(&mut self, socket: RawFd, watched: &Arc<Watched>) {
        self.polled.push(libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 });
        self.watched.push(watched.clone());
    }

    /// Their descriptors, for whoever waits for them in another way.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.polled.iter().map(|polled| polled.fd).collect()
    }

    /// Waits until there is something to read in one of them, the bell rings, or the time is over. Then
    /// each of them knows whether there is.
    pub fn wait(&mut self, bell: &Bell, timeout: Duration) {
        self.polled.push(libc::pollfd { fd: bell.heard.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let begun = clock::now_ns();
        let polled = poll(&mut self.polled, timeout);
        let rung = self.polled.pop().is_some_and(|p| p.revents != 0);
        if !polled {
            return;
        }
        if rung {
            bell.silence();
        }
        self.note(begun);
    }

    /// Where somebody has waited for them since `begun_ns` in another way: each of them knows whether there is something to read.
    /// Whether there is in any.
    pub fn look(&mut self, begun_ns: u64) -> bool {
        !self.is_empty() && poll(&mut self.polled, Duration::ZERO) && self.note(begun_ns)
    }

    /// Whether there is something to read in any.
    fn note(&self, begun: u64) -> bool {
        let ended = clock::now_ns();
        let at_once = ended - begun < SLEPT_NS;
        let mut any = false;
        for (polled, watched) in self.polled.iter().zip(&self.watched) {
            if polled.revents == 0 {
                watched.look(ended);
            } else {
                // What was there before we waited has come at any time since somebody last looked.
                watched.note(if at_once { watched.seen_ns() } else { ended });
                any = true;
            }
        }
        any
    }
}

/// Waits for descriptors; false if nothing is known of them: a signal of the operating system came between.
#[cfg(target_os = "linux")]
fn poll(descriptors: &mut [libc::pollfd], timeout: Duration) -> bool {
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos() as _ };
    // SAFETY: the slice is valid for its length, the time outlives the call, and no signals are given. The
    // standard library cannot wait for several sockets.
    unsafe { libc::ppoll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, &raw const timeout, std::ptr::null()) >= 0 }
}

/// As on Linux, to the millisecond.
#[cfg(not(target_os = "linux"))]
fn poll(descriptors: &mut [libc::pollfd], timeout: Duration) -> bool {
    let milliseconds = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as libc::c_int;
    // SAFETY: the slice is valid for its length. The standard library cannot wait for several sockets.
    unsafe { libc::poll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, milliseconds) >= 0 }
}

/// Wakes who waits for [`Sockets`].
pub struct Bell {
    rung: UnixStream,
    heard: UnixStream,
}

impl Bell {
    /// A bell that is silent.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let (rung, heard) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Bell { rung, heard })
    }

    /// Ends the wait that goes on, or else the next one.
    pub fn ring(&self) {
        // Fails only if it holds so many rings that there is no room for another.
        let _ = (&self.rung).write_all(&[1]);
    }

    fn silence(&self) {
        let mut rings = [0; 64];
        while matches!((&self.heard).read(&mut rings), Ok(read) if read == rings.len()) {}
    }
}

/// Reads what is there without waiting for more, 0 bytes at the end; with `peek` it stays there.
///
/// # Errors
/// `WouldBlock` if nothing is there; those of the connection.
pub(crate) fn receive_now(stream: &TcpStream, space: &mut [u8], peek: bool) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | if peek { libc::MSG_PEEK } else { 0 };
    loop {
        // SAFETY: the space is valid for its length, and the descriptor is that of an open stream. The standard
        // library can do this only with two more calls, which make the socket one that never waits and back.
        let received = unsafe { libc::recv(stream.as_raw_fd(), space.as_mut_ptr().cast(), space.len(), flags) };
        if let Ok(bytes) = usize::try_from(received) {
            return Ok(bytes);
        }
        let error = io::Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes out of the socket bytes that [`receive_now`] has copied and left there.
///
/// # Errors
/// Those of the connection, which has lost them.
pub(crate) fn discard_now(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    // Here the system drops what it would copy.
    #[cfg(target_os = "linux")]
    let (mut space, at_once, flags) = ([0u8; 0], usize::MAX, libc::MSG_DONTWAIT | libc::MSG_TRUNC);
    #[cfg(not(target_os = "linux"))]
    let (mut space, at_once, flags) = ([0u8; 16 << 10], 16 << 10, libc::MSG_DONTWAIT);
    let mut left = bytes;
    while left > 0 {
        // SAFETY: the descriptor is that of an open stream. The space is valid for the bytes that are copied: all that are asked for,
        // or none where they are dropped.
        let dropped = unsafe { libc::recv(stream.as_raw_fd(), space.as_mut_ptr().cast(), left.min(at_once), flags) };
        match usize::try_from(dropped) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(dropped) => left -= dropped,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn what_can_be_read_is_known_and_since_when() {
        let (mut peer, stream) = pair();
        let (silent, other) = pair();
        let (bell, mut sockets) = (Bell::new().unwrap(), Sockets::default());
        let watched = [&stream, &other].map(|stream| {
            let watched = Arc::new(Watched::new());
            sockets.add(stream.as_raw_fd(), &watched);
            watched
        });
        let before = watched[0].seen_ns();
        sockets.wait(&bell, Duration::ZERO);
        assert!(watched.iter().all(|w| w.take().is_none() && w.seen_ns() >= before), "nothing is there");
        let looked = watched[0].seen_ns();
        peer.write_all(b"abc").unwrap();
        while watched[0].take().map(|since| assert!((looked..=clock::now_ns()).contains(&since))).is_none() {
            sockets.wait(&bell, Duration::from_secs(60));
        }
        assert_eq!(watched[1].take(), None);
        let mut space = [0; 8];
        assert_eq!(receive_now(&stream, &mut space, true).unwrap(), 3);
        discard_now(&stream, 2).unwrap();
        assert_eq!((receive_now(&stream, &mut space, false).unwrap(), space[0]), (1, b'c'));
        assert_eq!(discard_now(&stream, 1).unwrap_err().kind(), ErrorKind::WouldBlock, "there is nothing to drop");
        assert_eq!(receive_now(&stream, &mut space, false).unwrap_err().kind(), ErrorKind::WouldBlock);
        // The end can be read, too.
        drop(silent);
        while watched[1].take().is_none() {
            sockets.wait(&bell, Duration::from_secs(60));
        }
        assert_eq!(receive_now(&other, &mut space, false).unwrap(), 0);
        assert_eq!(discard_now(&other, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_bell_wakes_whoever_waits_and_is_silent_then() {
        let bell = Bell::new().unwrap();
        // However often it was rung, also more often than it has room for.
        (0..100_000).for_each(|_| bell.ring());
        let (_peer, stream) = pair();
        let (mut sockets, watched) = (Sockets::default(), Arc::new(Watched::new()));
        sockets.add(stream.as_raw_fd(), &watched);
        sockets.wait(&bell, Duration::from_secs(60));
        assert_eq!((watched.take(), sockets.len()), (None, 1));
        let mut rung = [0];
        assert_eq!((&bell.heard).read(&mut rung).unwrap_err().kind(), ErrorKind::WouldBlock, "all rings were taken");
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            sockets.wait(&bell, Duration::from_secs(60));
        });
    }
}
