//! A table written: a client of Siddhi's source.
//!
//! The worker itself writes to the socket; a server that does not read fills the window, and the
//! worker waits. The protocol acknowledges nothing: what the kernel has taken counts as written, and
//! is lost if the connection then breaks. A frame that it has taken only in part is sent again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use tidemill_block::{Block, clock};

use super::encode::Encoder;
use super::frame::{Cut, split};
use super::{SiddhiOptions, Wire, column_of};
use crate::socket::alive;
use crate::sockets::receive_now;
use crate::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};

/// Complete frames are sent when they make this many bytes, or when the job has a moment.
const SEND_BYTES: usize = 128 << 10;
/// How long one address may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often who waits for the server looks whether the job is being stopped.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// The sink.
pub struct SiddhiSink {
    options: SiddhiOptions,
    channel: String,
    stamp: Option<usize>,
}

impl SiddhiSink {
    /// The sink of a table with these columns.
    ///
    /// # Errors
    /// A column that the wire has no type for, an unknown column for timestamps.
    pub fn new(schema: &SchemaRef, options: SiddhiOptions, channel: String) -> Result<Self, ConnectError> {
        let stamp = match &options.timestamp_column {
            Some(name) => {
                let types = "TIMESTAMP(3), TIMESTAMP_LTZ(3) or BIGINT";
                Some(column_of(schema, "timestamp.column", name, types, |wire| matches!(wire, Wire::Time | Wire::Long))?)
            }
            None => None,
        };
        let sink = SiddhiSink { options, channel, stamp };
        sink.encoder(schema)?;
        Ok(sink)
    }

    fn encoder(&self, schema: &SchemaRef) -> Result<Encoder, ConnectError> {
        let session = format!("{}-{}", random_id(), self.options.place());
        Encoder::new(schema, &session, &self.channel, self.options.frame_events, self.options.null_values, self.stamp)
    }
}

impl Sink for SiddhiSink {
    /// One connection: events of one stream stay in their order.
    fn parallelism(&self) -> Option<usize> {
        Some(1)
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let place = format!("tcp://{}/{}", self.options.place(), self.channel);
        let encoder = self.encoder(&context.schema)?;
        let mut writer = SiddhiWriter {
            options: self.options.clone(),
            place,
            encoder,
            buffer: Vec::with_capacity(SEND_BYTES * 2),
            stream: None,
            connected_before: false,
            cancelled: context.cancelled,
            sent: 0,
        };
        // Without further attempts the first one can be made here, where its error is seen at once.
        if self.options.reconnect_attempts == 0 {
            writer.connect()?;
        }
        Ok(Box::new(writer))
    }
}

/// A random UUID (version 4), which Siddhi's client begins its session ids with.
fn random_id() -> String {
    // The hasher's keys are random; what is hashed only tells the two halves apart.
    let half = |n| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(n);
        hasher.finish()
    };
    let (a, b) = (half(1), half(2));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        ((b >> 48) & 0x3fff) | 0x8000,
        b & 0xffff_ffff_ffff
    )
}

/// Connects once, to the first of the host's addresses that answers.
///
/// # Errors
/// The host is unknown, or what the last address said.
pub(super) fn connect_once(options: &SiddhiOptions) -> Result<TcpStream, String> {
    let mut last = "the host has no address".to_string();
    for address in options.addresses().map_err(|e| e.to_string())? {
        let connected = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).and_then(|stream| {
            // A frame is sent when it shall be sent. A full window must not keep a job from being stopped.
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(CANCEL_CHECK))?;
            // A server says nothing: while no frame is on its way, only probes tell that its machine is gone.
            alive::keep_alive(&stream)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e.to_string(),
        }
    }
    Err(last)
}

/// Writes frames to one server.
struct SiddhiWriter {
    options: SiddhiOptions,
    place: String,
    encoder: Encoder,
    buffer: Vec<u8>,
    stream: Option<TcpStream>,
    connected_before: bool,
    cancelled: Arc<AtomicBool>,
    /// Bytes of the frames that the kernel has taken.
    sent: u64,
}

impl SiddhiWriter {
    fn check_cancelled(&self) -> Result<(), ConnectError> {
        if self.cancelled.load(Ordering::Relaxed) {
            let place = &self.place;
            return Err(ConnectError::new(format!("writing to {place}: the job was stopped while the server was still busy or absent")));
        }
        Ok(())
    }

    /// Connects, as often as the options say.
    fn connect(&mut self) -> Result<(), ConnectError> {
        // The first connection has an attempt of its own; a later one only what the option gives.
        let attempts = self.options.reconnect_attempts as u64 + u64::from(!self.connected_before);
        let mut last = "the connection was closed".to_string();
        for attempt in 1..=attempts {
            if self.connected_before || attempt > 1 {
                self.pause()?;
            }
            match connect_once(&self.options) {
                Ok(stream) => {
                    self.stream = Some(stream);
                    self.connected_before = true;
                    return Ok(());
                }
                Err(why) => last = format!("{why} (attempt {attempt} of {attempts})"),
            }
        }
        let place = &self.place;
        Err(ConnectError::new(format!("connecting to {place}: {last}; check that a server listens there, or set 'reconnect.attempts'")))
    }

    fn pause(&self) -> Result<(), ConnectError> {
        let end = Instant::now() + self.options.reconnect_backoff;
        loop {
            self.check_cancelled()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(CANCEL_CHECK));
        }
    }

    /// Sends the first `upto` bytes of the buffer, which are complete frames.
    fn send(&mut self, upto: usize) -> Result<(), ConnectError> {
        let mut at = 0;
        while at < upto {
            if self.stream.is_none() {
                self.connect()?;
            }
            let stream = self.stream.as_mut().expect("connected above");
            // A server that went away in a pause is noticed before bytes are thrown after it.
            let fault = match closed(stream) {
                Some(fault) => fault,
                None => match write(stream, &self.buffer[..upto], &mut at, &self.cancelled) {
                    Ok(()) => continue,
                    Err(e) if e.kind() == ErrorKind::TimedOut => return self.check_cancelled(),
                    Err(e) => e.to_string(),
                },
            };
            self.stream = None;
            if self.options.reconnect_attempts == 0 {
                return Err(ConnectError::new(format!(
                    "writing to {}: {fault}; events on their way are lost; set 'reconnect.attempts' to connect again",
                    self.place
                )));
            }
            at = frames_within(&self.buffer[..upto], at);
            self.connect().map_err(|e| e.at(format!("{fault}; events on their way are lost")))?;
        }
        self.sent += upto as u64;
        self.buffer.drain(..upto);
        self.encoder.gone(upto);
        Ok(())
    }
}

/// Whether the server has closed its end, which is all that it can say.
fn closed(stream: &TcpStream) -> Option<String> {
    match receive_now(stream, &mut [0], true) {
        Ok(0) => Some("the server closed the connection".into()),
        Err(e) if e.kind() != ErrorKind::WouldBlock => Some(e.to_string()),
        _ => None,
    }
}

/// Writes all of `bytes` from `at` on; `at` goes with what was written.
///
/// # Errors
/// The connection's, or `TimedOut` if the job is being stopped.
fn write(stream: &mut TcpStream, bytes: &[u8], at: &mut usize, cancelled: &AtomicBool) -> std::io::Result<()> {
    while *at < bytes.len() {
        match stream.write(&bytes[*at..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => *at += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if cancelled.load(Ordering::Relaxed) {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The end of the last frame that lies within the first `at` bytes of some frames.
fn frames_within(frames: &[u8], at: usize) -> usize {
    let mut end = 0;
    while let Ok(Cut::Frame(frame)) = split(&frames[end..], usize::MAX)
        && end + frame.length <= at
    {
        end += frame.length;
    }
    end
}

impl Writer for SiddhiWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.encoder.encode(&block.batch, &mut self.buffer, clock::wall_ms())?;
        let complete = self.encoder.complete(&self.buffer);
        if complete >= SEND_BYTES { self.send(complete) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.encoder.close(&mut self.buffer)?;
        self.send(self.buffer.len())
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.flush()?;
        if last && let Some(stream) = self.stream.take() {
            // The kernel sends what it has; the server never says anything that could be waited for.
            let _ = stream.shutdown(Shutdown::Write);
        }
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.sent + self.buffer.len() as u64 }
    }
}
