//! Whether a peer is still there. One whose machine or network went away says nothing, and neither does the system to
//! those who only read: so probes are sent, and who wants may bound the silence of peers that answer them.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// After how much silence a peer's system is asked whether the connection still exists.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// How long to wait for its answer before it is asked again.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is asked: a connection that is gone is known to be so after a minute.
const PROBES: u32 = 3;
/// How long what we send to a peer that we read from (answers, pings) may stay without an acknowledgement.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);

/// Has the system ask silent peers whether they are there; of a socket that listens, the peers of all its connections.
///
/// # Errors
/// The connection is gone already.
pub fn keep_alive(socket: &impl AsFd) -> io::Result<()> {
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_INTERVAL).with_retries(PROBES);
    SockRef::from(socket).set_tcp_keepalive(&probes)
}

/// For a peer that is read from: what we send to it must be acknowledged in time. Not for one that is written to, since
/// the system counts a peer that is slow to read, and that the job waits for, as one that does not acknowledge.
///
/// # Errors
/// The connection is gone already.
pub fn acknowledging(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
    Ok(())
}

/// How much of what was written the peer's system has not acknowledged, bytes, if ours says it: what has not left among it.
#[cfg(target_os = "linux")]
pub fn unacknowledged(stream: &impl AsFd) -> Option<usize> {
    use std::os::fd::AsRawFd;

    let mut bytes: libc::c_int = 0;
    // Nobody wraps this one in anything safe.
    // SAFETY: the descriptor is open while it is borrowed, and TIOCOUTQ writes one int, which `bytes` is.
    let asked = unsafe { libc::ioctl(stream.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if asked == 0 { usize::try_from(bytes).ok() } else { None }
}

/// How much of what was written is not acknowledged: systems other than Linux do not say it.
#[cfg(not(target_os = "linux"))]
pub fn unacknowledged(_stream: &impl AsFd) -> Option<usize> {
    None
}

/// How long nothing has come, if the system says it and all that has come was read: a peer that we keep waiting is not
/// silent.
#[cfg(target_os = "linux")]
pub fn silence(stream: &TcpStream) -> Option<Duration> {
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;

    let unread = SockRef::from(stream).recv_with_flags(&mut [MaybeUninit::uninit()], libc::MSG_PEEK | libc::MSG_DONTWAIT);
    if unread.map_or_else(|e| e.kind() != io::ErrorKind::WouldBlock, |_| true) {
        return None;
    }
    // Not from who reads: that may be anybody, and would have to look at the clock for every read.
    // SAFETY: all-zero bytes are a valid tcp_info, and getsockopt writes no more than `length` bytes into it.
    let info = unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let got = libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length);
        (got == 0).then_some(info)
    };
    info.map(|info| Duration::from_millis(info.tcpi_last_data_recv.into()))
}

/// How long nothing has come: systems other than Linux do not say it.
#[cfg(not(target_os = "linux"))]
pub fn silence(_stream: &TcpStream) -> Option<Duration> {
    None
}
