//! The connection of a writer: messages on their way to the broker, those that it has not acknowledged among them.
//!
//! Of quality 1 the broker takes so many at once that it has not acknowledged; the others wait, and when the connection is made
//! anew, which has a session of its own, all that are not acknowledged go out again, in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidemill_connect::ConnectError;
use tidemill_connect::socket::peer::Peers;

use crate::link::Link;
use crate::options::Quality;
use crate::packet::{self, Accepted, GOODBYE, Packet};
use crate::reason;
use crate::target::{Patience, Target, Wanted};

/// Bytes are given to the connection when there are so many.
const BUFFER_BYTES: usize = 64 << 10;
/// How many messages are sent before the first of them is acknowledged, whatever the broker takes: acknowledgements that
/// nobody reads yet must fit into the buffers on the way, or both sides would wait for each other.
const WINDOW_MAX: usize = 1_024;
/// How many messages may wait: each has an id of 16 bits.
const WAITING_MAX: usize = 16_384;
/// How long is waited for acknowledgements before it is looked whether the job is being stopped.
const TICK: Duration = Duration::from_millis(20);
/// A connection that lived no longer than this is not made again at once.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// But after that long.
const SHORT_LIFE_PAUSE: Duration = Duration::from_secs(1);
/// How long a job that was asked to stop waits for a broker that is away.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// What a writer promises, and how much it holds.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The quality of its messages.
    pub quality: Quality,
    /// Whether the broker keeps the last of each topic.
    pub retain: bool,
    /// How many bytes it holds that are not acknowledged.
    pub queue: u64,
}

/// Whether the job comes to its end.
#[derive(Clone, Debug)]
pub struct End {
    /// It has failed.
    pub cancelled: Arc<AtomicBool>,
    /// It was asked to stop.
    pub stopping: Arc<AtomicBool>,
}

impl End {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// A message that is not acknowledged.
struct Waiting {
    id: u16,
    topic: Arc<str>,
    packet: Vec<u8>,
}

/// The connection of a writer.
pub struct Line {
    target: Arc<Target>,
    peers: Arc<Peers>,
    wanted: Wanted,
    terms: Terms,
    end: End,
    link: Link,
    accepted: Accepted,
    /// When it was made.
    since: Instant,
    /// Why it is broken.
    broken: Option<String>,
    /// Not acknowledged, in order.
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    /// How many of them were sent on this connection.
    sent: usize,
    next_id: u16,
    /// To be given to the connection.
    out: Vec<u8>,
}

impl Line {
    /// Connects.
    ///
    /// # Errors
    /// There is no broker, or none that takes what is to be written.
    pub fn connect(target: Arc<Target>, peers: Arc<Peers>, wanted: Wanted, terms: Terms, end: End) -> Result<Self, ConnectError> {
        let (link, accepted) = target.connect(&peers, &wanted, Patience::Start, || end.is_cancelled() || end.is_stopping())?;
        let line = Line {
            target,
            peers,
            wanted,
            terms,
            end,
            link,
            accepted,
            since: Instant::now(),
            broken: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: 0,
            next_id: 1,
            out: Vec::new(),
        };
        line.check_accepted()?;
        Ok(line)
    }

    fn wrong(&self, why: &str) -> ConnectError {
        ConnectError::new(format!("writing to {}: {why}", self.target))
    }

    /// Checks that the broker takes what is to be written.
    fn check_accepted(&self) -> Result<(), ConnectError> {
        if self.accepted.quality_max < self.terms.quality.number() {
            return Err(self.wrong("the broker takes messages of quality 0 only; 'qos' = '0' bears that"));
        }
        if self.terms.retain && !self.accepted.retains {
            return Err(self.wrong("the broker retains no messages: leave 'sink.retain' out"));
        }
        Ok(())
    }

    /// How many messages may be on their way.
    fn window(&self) -> usize {
        usize::from(self.accepted.receive_max).min(WINDOW_MAX)
    }

    /// Takes a message; waits while there are too many already.
    ///
    /// # Errors
    /// The broker refuses one, or takes none so long; the job is being stopped while it is away.
    pub fn push(&mut self, topic: &Arc<str>, payload: &[u8]) -> Result<(), ConnectError> {
        match self.terms.quality {
            Quality::AtMostOnce => {
                let length = packet::message(&mut self.out, topic, None, self.terms.retain, payload);
                self.check_length(topic, length)?;
                if self.out.len() >= BUFFER_BYTES { self.turn(None) } else { Ok(()) }
            }
            Quality::AtLeastOnce => {
                while self.waiting.len() >= WAITING_MAX || self.waiting_bytes >= self.terms.queue {
                    self.turn(Some(TICK))?;
                }
                let (id, mut packet) = (self.next_id, Vec::new());
                let length = packet::message(&mut packet, topic, Some(id), self.terms.retain, payload);
                self.check_length(topic, length)?;
                self.next_id = if id == u16::MAX { 1 } else { id + 1 };
                self.waiting_bytes += packet.len() as u64;
                self.waiting.push_back(Waiting { id, topic: topic.clone(), packet });
                Ok(())
            }
        }
    }

    fn check_length(&self, topic: &str, length: usize) -> Result<(), ConnectError> {
        // The broker's bound counts what stands before the body, too.
        let most = self.accepted.packet_max.map_or(packet::BODY_BYTES_MAX, |most| (most as usize).saturating_sub(packet::HEAD_BYTES_MAX));
        if length > most {
            return Err(self.wrong(&format!("a message of {length} bytes to '{topic}': the broker takes no more than {most}")));
        }
        Ok(())
    }

    /// Sends what can be sent and takes what has come, for which it waits that long, or not at all. Connects again if need
    /// be.
    ///
    /// # Errors
    /// As [`Line::push`].
    pub fn turn(&mut self, wait: Option<Duration>) -> Result<(), ConnectError> {
        if self.end.is_cancelled() {
            return Err(self.wrong("the job was stopped while the broker was still busy or absent"));
        }
        // What came before a break counts, too.
        self.take()?;
        if let Some(why) = self.broken.take() {
            self.again(&why)?;
        }
        if let Err(e) = self.send().and_then(|()| self.hear(wait)) {
            self.broken = Some(e.to_string());
        }
        self.take()?;
        if self.broken.is_none()
            && let Err(e) = self.send()
        {
            self.broken = Some(e.to_string());
        }
        Ok(())
    }

    /// Takes the packets that are there.
    fn take(&mut self) -> Result<(), ConnectError> {
        let mut at = 0;
        while let Some(head) = self.link.head(at).map_err(|e| self.wrong(&e.to_string()))? {
            let end = head.from + head.length;
            let Some(body) = self.link.received().get(head.from..end) else { break };
            let packet = packet::read(head.first, body).map_err(|e| self.wrong(&e.to_string()))?;
            at = end;
            match packet {
                Packet::Acknowledged { id, reason, said } => self.settle(id, reason, &said)?,
                Packet::Disconnect { reason, said } => {
                    let why = format!("the broker has ended the connection: {}", reason::shown(reason, &said));
                    if reason::lasting(reason) {
                        return Err(self.wrong(&why));
                    }
                    self.broken = Some(why);
                }
                _ => {}
            }
        }
        self.link.drop_first(at);
        Ok(())
    }

    /// A message is acknowledged, or refused.
    fn settle(&mut self, id: u16, reason: u8, said: &str) -> Result<(), ConnectError> {
        // Nearly always it is the first of them.
        let Some(at) = self.waiting.iter().take(self.sent).position(|waiting| waiting.id == id) else { return Ok(()) };
        let Some(waiting) = self.waiting.remove(at) else { return Ok(()) };
        self.sent -= 1;
        self.waiting_bytes -= waiting.packet.len() as u64;
        if reason >= 0x80 {
            let why = reason::shown(reason, said);
            return Err(self.wrong(&format!("the broker refuses a message to '{}': {why}", waiting.topic)));
        }
        Ok(())
    }

    fn can_send(&self) -> bool {
        self.sent < self.waiting.len().min(self.window())
    }

    /// Gives the connection what it may have.
    fn send(&mut self) -> io::Result<()> {
        while self.can_send() {
            self.out.extend_from_slice(&self.waiting[self.sent].packet);
            self.sent += 1;
            if self.out.len() >= BUFFER_BYTES {
                self.link.send(&self.out)?;
                self.out.clear();
            }
        }
        if !self.out.is_empty() {
            self.link.send(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Reads what has come, and waits for it where acknowledgements are to come.
    fn hear(&mut self, wait: Option<Duration>) -> io::Result<()> {
        self.link.fill(wait.filter(|_| self.sent > 0))?;
        self.link.tend()
    }

    /// Connects again.
    fn again(&mut self, why: &str) -> Result<(), ConnectError> {
        tidemill_connect::notice(&format!("writing to {}: {why}; connecting again", self.target));
        self.peers.remove(0);
        if self.since.elapsed() < SHORT_LIFE {
            self.peers.pause(SHORT_LIFE_PAUSE);
        }
        let gone = Instant::now();
        let over = || self.end.is_cancelled() || (self.end.is_stopping() && gone.elapsed() >= STOP_PATIENCE);
        let made = self.target.connect(&self.peers, &self.wanted, Patience::Endless, over);
        (self.link, self.accepted) = made.map_err(|e| self.wrong(&e.to_string()))?;
        self.since = Instant::now();
        self.broken = None;
        self.sent = 0;
        // What was in it went to the broker in part, or waits.
        self.out.clear();
        tidemill_connect::notice(&format!("{} answers again, after {} s", self.target, gone.elapsed().as_secs()));
        self.check_accepted()
    }

    /// Sends everything; with `acknowledged` the broker has it then.
    ///
    /// # Errors
    /// As [`Line::push`].
    pub fn drain(&mut self, acknowledged: bool) -> Result<(), ConnectError> {
        // A break while nothing is owed can wait for the next message.
        while (self.broken.is_some() && !self.waiting.is_empty())
            || !self.out.is_empty()
            || self.sent < self.waiting.len()
            || (acknowledged && !self.waiting.is_empty())
        {
            self.turn(Some(TICK))?;
        }
        Ok(())
    }

    /// Looks after a connection on which nothing is written.
    pub fn tend(&mut self) {
        if self.broken.is_none()
            && let Err(e) = self.hear(None)
        {
            self.broken = Some(e.to_string());
        }
    }

    /// Ends the connection in good order.
    pub fn goodbye(&mut self) {
        // If it is broken, nobody waits for it.
        let _ = self.link.send(GOODBYE);
        self.peers.remove(0);
    }
}
