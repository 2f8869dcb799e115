//! The socket of a connection, which fails when its peer takes nothing of what it is sent for too long.
//!
//! The system finds machines that are gone, HTTP/2 has pings, and a WebSocket gives its messages a time of their own. A peer of
//! HTTP/1.1 that answers the system's probes and reads nothing would keep its connection, and all that waits for it, for ever.
//! Looked at is what lies below TLS, which takes a little more even when its peer does not.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidemill_connect::socket::alive;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How often within the bound a socket that is full is looked at.
const LOOKS: u32 = 8;

/// The socket.
pub struct Outflow {
    stream: TcpStream,
    /// How long its peer may take nothing.
    untaken_max: Duration,
    full: Option<Full>,
}

/// A socket into which nothing more fits.
struct Full {
    /// Since when its peer has taken nothing.
    since: Instant,
    /// What it has not taken, bytes. That shrinks long before the system says that there is room again.
    left: Option<usize>,
    look: Pin<Box<Sleep>>,
}

impl Outflow {
    /// Its peer may take nothing for so long.
    pub fn new(stream: TcpStream, untaken_max: Duration) -> Self {
        Outflow { stream, untaken_max, full: None }
    }

    /// Looks at what a write came to.
    fn watched(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.full = None;
            return written;
        }
        let pause = self.untaken_max / LOOKS;
        let full = self.full.get_or_insert_with(|| Full {
            since: Instant::now(),
            left: alive::unacknowledged(&self.stream),
            look: Box::pin(sleep(pause)),
        });
        // The timer wakes the task, which then writes again and so comes back here.
        while full.look.as_mut().poll(context).is_ready() {
            let (now, left) = (Instant::now(), alive::unacknowledged(&self.stream));
            if left < full.left {
                (full.since, full.left) = (now, left);
            }
            if now.duration_since(full.since) >= self.untaken_max {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            full.look.as_mut().reset(now + pause);
        }
        Poll::Pending
    }
}

impl AsyncRead for Outflow {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Outflow {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
