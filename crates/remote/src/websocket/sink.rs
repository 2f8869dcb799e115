//! Rows to a server, each as a message of text.
//!
//! The writer encodes; a thread owns the connection, writes, and answers the server's pings when there
//! is nothing to write. Between them lies a bounded queue, so a slow server slows the job down.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use tidemill_block::Block;
use tidemill_connect::socket::peer::{Peers, StopOnDrop, spawn};
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};
use tidemill_format::Encoder;
use tidemill_format::text::TextFormat;
use tungstenite::{Bytes, Error, Message, Utf8Bytes, WebSocket};

use super::WebSocketOptions;
use super::connect::{Target, Transport};
use super::inflow::closed;

/// Rows are handed to the thread when they make this many bytes, or when the job has a moment.
pub const BUFFER_BYTES: usize = 64 << 10;
/// Rows encoded before their size is looked at.
const ENCODE_ROWS: usize = 256;
/// How often who waits looks whether the job is being stopped.
const CANCEL_CHECK: Duration = Duration::from_millis(50);
/// How often an idle thread looks whether the server says something.
const LISTEN_INTERVAL: Duration = Duration::from_millis(100);
/// Messages of the server that are passed over at once.
const HEARD_MAX: usize = 1000;
/// How long to wait for the server's goodbye.
const GOODBYE_PATIENCE: Duration = Duration::from_secs(2);

/// The sink.
pub struct WebSocketSink {
    pub options: WebSocketOptions,
    pub format: TextFormat,
    pub target: Arc<Target>,
}

/// How the end of a record is found in what the encoder writes.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// Every line end.
    Lines,
    /// Line ends that stand outside of these quotes.
    Unquoted(u8),
}

/// What the thread is asked to do.
enum Order {
    /// To send these records.
    Send(Vec<u8>),
    /// To say when everything before is sent.
    Drain(Sender<()>),
    /// The same, and to close the connection.
    Finish(Sender<()>),
}

impl Sink for WebSocketSink {
    fn parallelism(&self) -> Option<usize> {
        Some(1)
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let mut encoder = self.format.encoder(&context.schema)?;
        let mut header = Vec::new();
        encoder.begin(&mut header);
        let ends = match &self.format {
            TextFormat::Csv(csv) if !csv.disable_quote_character => Ends::Unquoted(csv.quote_character as u8),
            _ => Ends::Lines,
        };
        let peers = Arc::new(Peers::default());
        let call = Call {
            target: self.target.clone(),
            peers: peers.clone(),
            greeting: String::from_utf8_lossy(&header).trim_end().to_string(),
            ends,
            ping: self.options.ping(),
        };
        // Without further attempts the first one can be made here, where its error is seen at once.
        let first = if self.target.attempts() == 0 { Some(call.connect(0, false)?) } else { None };
        let (orders, received) = bounded((self.options.sink_queue.0 as usize / BUFFER_BYTES).max(1));
        let failure = Arc::new(Mutex::new(None));
        let told = failure.clone();
        spawn("tidemill-websocket", move || {
            if let Err(error) = call.run(first, &received) {
                // Noted before the queue is closed, so that who finds it closed finds it.
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
            drop(received);
        })?;
        Ok(Box::new(WebSocketWriter {
            encoder,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            orders,
            failure,
            place: self.target.place(),
            cancelled: context.cancelled,
            bytes: 0,
            _guard: StopOnDrop(peers),
        }))
    }
}

/// How the server is called.
struct Call {
    target: Arc<Target>,
    peers: Arc<Peers>,
    /// The header line of the format.
    greeting: String,
    ends: Ends,
    ping: Option<Duration>,
}

impl Call {
    fn connect(&self, peer: u64, again: bool) -> Result<WebSocket<Transport>, ConnectError> {
        self.target.connect(&self.peers, peer, again, &self.greeting, |transport| transport)
    }

    fn run(self, first: Option<WebSocket<Transport>>, orders: &Receiver<Order>) -> Result<(), ConnectError> {
        let socket = first.map_or_else(|| self.connect(0, false), Ok)?;
        let mut line = Line { socket, peer: 0, asked: false, since: Instant::now(), call: self };
        loop {
            match orders.recv_timeout(LISTEN_INTERVAL) {
                Ok(Order::Send(records)) => {
                    let records = Bytes::from(records);
                    // After a break the records in hand are sent again as a whole.
                    while let Err(error) = line.say(&records) {
                        line.again(&error.to_string())?;
                    }
                    line.tend()?;
                }
                Ok(Order::Drain(done)) => {
                    // Nobody waits any more if the job is being stopped.
                    let _ = done.send(());
                }
                Ok(Order::Finish(done)) => {
                    line.goodbye();
                    let _ = done.send(());
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => line.tend()?,
                // The writer is given up.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// A connection to the server, made anew when it breaks.
struct Line {
    call: Call,
    socket: WebSocket<Transport>,
    peer: u64,
    /// It was asked whether it is there, and has said nothing since.
    asked: bool,
    /// When it was asked, or has last said something.
    since: Instant,
}

impl Line {
    /// Sends each record as a message.
    fn say(&mut self, records: &Bytes) -> Result<(), Error> {
        let socket = &mut self.socket;
        each_record(records, self.call.ends, |record| {
            socket.write(match Utf8Bytes::try_from(record.clone()) {
                Ok(text) => Message::Text(text),
                Err(_) => Message::Binary(record),
            })
        })?;
        socket.flush()
    }

    /// Connects again, if the options say so.
    fn again(&mut self, why: &str) -> Result<(), ConnectError> {
        let place = self.call.target.place();
        let lost = format!("writing to {place}: {why}; rows on their way are lost");
        self.call.peers.remove(self.peer);
        if self.call.target.attempts() == 0 {
            return Err(ConnectError::new(format!("{lost}; set 'reconnect.attempts' to connect again")));
        }
        tidemill_connect::notice(&format!("{lost}; connecting again"));
        self.peer += 1;
        self.socket = self.call.connect(self.peer, true).map_err(|e| ConnectError::new(format!("{lost}; then: {e}")))?;
        (self.asked, self.since) = (false, Instant::now());
        Ok(())
    }

    /// Looks whether the server is there, and connects again if it is not.
    fn tend(&mut self) -> Result<(), ConnectError> {
        match self.listen() {
            Ok(()) => Ok(()),
            Err(why) => self.again(&why),
        }
    }

    /// Takes what the server says, answers its pings, and asks it whether it is there.
    fn listen(&mut self) -> Result<(), String> {
        let text = |e: io::Error| e.to_string();
        self.socket.get_ref().tcp().set_nonblocking(true).map_err(text)?;
        let heard = self.hear();
        self.socket.get_ref().tcp().set_nonblocking(false).map_err(text)?;
        if heard? {
            (self.asked, self.since) = (false, Instant::now());
        }
        if let Some(interval) = self.call.ping
            && self.since.elapsed() >= interval
        {
            if self.asked {
                return Err("the server does not answer pings".to_string());
            }
            (self.asked, self.since) = (true, Instant::now());
            self.socket.send(Message::Ping(Bytes::new())).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Passes over what has come; whether there was something.
    fn hear(&mut self) -> Result<bool, String> {
        for heard in 0..HEARD_MAX {
            match self.socket.read() {
                Ok(Message::Close(frame)) => {
                    let _ = self.socket.flush();
                    return Err(closed(frame).why().unwrap_or("the server has closed the connection").to_string());
                }
                Ok(_) => {}
                Err(Error::Io(e)) if e.kind() == ErrorKind::WouldBlock => return Ok(heard > 0),
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(true)
    }

    /// Closes the connection so that the server still gets everything.
    fn goodbye(&mut self) {
        let _ = self.socket.get_ref().tcp().set_read_timeout(Some(GOODBYE_PATIENCE));
        let _ = self.socket.close(None);
        // With an end, for a server that never stops talking.
        (0..HEARD_MAX).take_while(|_| self.socket.read().is_ok()).for_each(drop);
        self.call.peers.remove(self.peer);
    }
}

/// Calls `each` with every record, without its line end and without a copy.
fn each_record<E>(records: &Bytes, ends: Ends, mut each: impl FnMut(Bytes) -> Result<(), E>) -> Result<(), E> {
    let quote = match ends {
        Ends::Lines => None,
        Ends::Unquoted(quote) => Some(quote),
    };
    let (mut from, mut quoted) = (0, false);
    for (at, byte) in records.iter().enumerate() {
        if Some(*byte) == quote {
            // A doubled quote within a field closes and opens it.
            quoted = !quoted;
        } else if *byte == b'\n' && !quoted {
            each(records.slice(from..at))?;
            from = at + 1;
        }
    }
    if from < records.len() { each(records.slice(from..)) } else { Ok(()) }
}

struct WebSocketWriter {
    encoder: Box<dyn Encoder>,
    buffer: Vec<u8>,
    orders: Sender<Order>,
    /// Why the thread has ended.
    failure: Arc<Mutex<Option<String>>>,
    place: String,
    cancelled: Arc<AtomicBool>,
    /// Bytes handed to the thread.
    bytes: u64,
    /// Closes the connection under a thread that waits for it.
    _guard: StopOnDrop,
}

impl WebSocketWriter {
    fn gone(&self) -> ConnectError {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || format!("internal error: the thread that writes to {} has ended; its message is above", self.place);
        ConnectError::new(failure.clone().unwrap_or_else(unknown))
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// For whoever waits: gives up if the job is being stopped.
    fn check(&self) -> Result<(), ConnectError> {
        if self.cancelled.load(Ordering::Relaxed) {
            let text = format!("writing to {}: the job was stopped while the server was still busy or absent", self.place);
            return Err(ConnectError::new(text));
        }
        Ok(())
    }

    fn order(&self, mut order: Order) -> Result<(), ConnectError> {
        loop {
            match self.orders.send_timeout(order, CANCEL_CHECK) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Disconnected(_)) => return Err(self.gone()),
                Err(SendTimeoutError::Timeout(back)) => order = back,
            }
            self.check()?;
        }
    }

    /// Orders something and waits until it is done.
    fn wait(&self, order: impl FnOnce(Sender<()>) -> Order) -> Result<(), ConnectError> {
        let (done, answer) = bounded(1);
        self.order(order(done))?;
        loop {
            match answer.recv_timeout(CANCEL_CHECK) {
                Ok(()) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                // An order that was sent while the thread ended may lie in the queue unanswered.
                Err(RecvTimeoutError::Timeout) if self.has_failed() => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) => self.check()?,
            }
        }
    }
}

impl Writer for WebSocketWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        for from in (0..block.rows()).step_by(ENCODE_ROWS) {
            self.encoder.encode(&block.slice(from, ENCODE_ROWS.min(block.rows() - from)), &mut self.buffer)?;
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        if !self.buffer.is_empty() {
            let capacity = self.buffer.capacity().min(2 * BUFFER_BYTES);
            let records = std::mem::replace(&mut self.buffer, Vec::with_capacity(capacity));
            self.bytes += records.len() as u64;
            self.order(Order::Send(records))?;
        }
        Ok(())
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.flush()?;
        self.wait(if last { Order::Finish } else { Order::Drain })?;
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes + self.buffer.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &'static str, ends: Ends, expect: &[&str]) {
        let mut found = Vec::new();
        let all = each_record(&Bytes::from_static(text.as_bytes()), ends, |record| {
            found.push(String::from_utf8(record.to_vec()).unwrap());
            Ok::<(), ()>(())
        });
        assert_eq!((all, found.as_slice()), (Ok(()), expect.iter().map(|e| e.to_string()).collect::<Vec<_>>().as_slice()));
    }

    #[test]
    fn records_end_at_line_ends() {
        check("", Ends::Lines, &[]);
        check("a\n\nb\n", Ends::Lines, &["a", "", "b"]);
        check("\"a\nb\"\nc", Ends::Lines, &["\"a", "b\"", "c"]);
        check("\"a\n\"\"b\",1\nc\n", Ends::Unquoted(b'"'), &["\"a\n\"\"b\",1", "c"]);
        check("'\n'\n\"\n", Ends::Unquoted(b'\''), &["'\n'", "\""]);
    }
}
