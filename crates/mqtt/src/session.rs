//! The thread that follows a session: subscribes, takes messages, acknowledges what checkpoints hold, and connects again
//! when the broker goes away.
//!
//! When the job has enough, nothing is read: the broker finds its connection full, and is told from time to time that we
//! are there. The last acknowledgements go out behind the last checkpoint, when the reader is gone already.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_block::clock;
use tidemill_connect::ConnectError;
use tidemill_connect::socket::peer::Peers;
use tidemill_format::message::Place;

use crate::inbox::{Entry, Inbox, Parcel};
use crate::ledger::Ledger;
use crate::link::Link;
use crate::options::Quality;
use crate::packet::{self, GOODBYE, Head, Malformed, Packet, Publish};
use crate::reason;
use crate::target::{Patience, Target, Wanted};

/// How often is looked whether there is something to acknowledge, or whether the end has come.
const TICK: Duration = Duration::from_millis(20);
/// So much of a message that is too long is read, bytes: its topic and properties are in it.
const CUT_BYTES: usize = 256 << 10;
/// How much of one whose topic and properties are longer, before it counts as none.
const PROPERTIES_BYTES_MAX: usize = 16 << 20;
/// So much of it is shown, bytes.
const SHOWN_BYTES: usize = 1 << 10;
/// A connection that lived no longer than this is not made again at once.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// But after that long.
const SHORT_LIFE_PAUSE: Duration = Duration::from_secs(1);
/// The id of the only packet of ours that has one.
const SUBSCRIPTION: u16 = 1;

/// Follows a session.
pub struct Session {
    /// The broker.
    pub target: Arc<Target>,
    /// Whom messages are for.
    pub inbox: Arc<Inbox>,
    /// Whose connection can be cut.
    pub peers: Arc<Peers>,
    /// The session.
    pub wanted: Wanted,
    /// What is subscribed to.
    pub filters: Vec<String>,
    /// With which quality.
    pub quality: Quality,
    /// The longest body of a packet that is taken.
    pub packet_max: usize,
    /// The number of the last message.
    pub last: u64,
    /// The job goes on from a checkpoint: the broker should have a session.
    pub resumed: bool,
    /// What is to be acknowledged.
    pub ledger: Ledger,
}

/// Why a connection is no more.
enum Broken {
    /// The broker went away, and may come back.
    Passing(String),
    /// It would end alike another time.
    Lasting(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Passing(error.to_string())
    }
}

impl From<Malformed> for Broken {
    fn from(error: Malformed) -> Self {
        Broken::Passing(format!("the broker sent what is no packet of MQTT 5: {error}"))
    }
}

impl Session {
    /// Until the source is gone, or what follows would fail again and again.
    pub fn run(mut self) {
        let inbox = self.inbox.clone();
        if let Err(error) = self.serve()
            && !inbox.has_ended()
        {
            inbox.fail(error);
        }
        inbox.done();
    }

    fn serve(&mut self) -> Result<(), ConnectError> {
        let mut gone: Option<Instant> = None;
        loop {
            let patience = if gone.is_none() { Patience::Start } else { Patience::Endless };
            let inbox = self.inbox.clone();
            let (link, accepted) = self.target.connect(&self.peers, &self.wanted, patience, || inbox.has_ended())?;
            if let Some(since) = gone {
                tidemill_connect::notice(&format!("{} answers again, after {} s", self.target, since.elapsed().as_secs()));
            }
            self.begin(gone.is_some(), accepted.session_present);
            let begun = Instant::now();
            match self.follow(link) {
                Ok(()) => return Ok(()),
                Err(_) if self.inbox.has_ended() => return Ok(()),
                Err(Broken::Lasting(why)) => return Err(ConnectError::new(format!("reading from {}: {why}", self.target))),
                Err(Broken::Passing(why)) => {
                    tidemill_connect::notice(&format!("reading from {}: {why}; connecting again", self.target));
                }
            }
            self.peers.remove(0);
            gone = Some(Instant::now());
            // A broker that takes connections and breaks them at once is not asked without end.
            if begun.elapsed() < SHORT_LIFE {
                self.peers.pause(SHORT_LIFE_PAUSE);
            }
        }
    }

    /// A connection is made.
    fn begin(&mut self, again: bool, session_present: bool) {
        self.ledger.begin(session_present);
        let expected = again || (self.resumed && !self.wanted.clean_start);
        if expected && !session_present && self.quality == Quality::AtLeastOnce {
            tidemill_connect::notice(&format!(
                "reading from {}: the broker has no session of the client '{}' (any more): what was published meanwhile is missed",
                self.target, self.wanted.client_id
            ));
        }
        // What was to be forgotten is, and what comes now is not.
        self.wanted.clean_start = false;
    }

    /// Until the connection breaks, or the source is gone.
    fn follow(&mut self, mut link: Link) -> Result<(), Broken> {
        let mut out = Vec::new();
        packet::subscribe(&mut out, SUBSCRIPTION, &self.filters, self.quality);
        link.send(&out)?;
        loop {
            self.take(&mut link)?;
            // In this order: what was committed before the end is acknowledged.
            let ended = self.inbox.has_ended();
            out.clear();
            self.ledger.settle(self.inbox.committed(), |id| packet::acknowledge(&mut out, id));
            if !out.is_empty() {
                link.send(&out)?;
            }
            if ended {
                link.send(GOODBYE)?;
                return Ok(());
            }
            if self.inbox.has_room() {
                link.fill(Some(TICK))?;
                link.tend()?;
            } else {
                self.inbox.wait_for_room(TICK);
                link.tend_unread()?;
            }
        }
    }

    /// Takes all packets that are there.
    fn take(&mut self, link: &mut Link) -> Result<(), Broken> {
        let mut parcel = Parcel { first: self.last + 1, arrival_ns: clock::now_ns(), ..Parcel::default() };
        let mut at = 0;
        let sorted = self.sort(link, &mut parcel, &mut at);
        // Even those before a packet that ends the connection: they count as taken.
        if parcel.entries.is_empty() {
            link.drop_first(at);
        } else {
            parcel.bytes = link.take_first(at);
            self.inbox.push(parcel);
        }
        sorted
    }

    /// Puts the messages that are there into `parcel`; `at` is behind the last packet.
    fn sort(&mut self, link: &mut Link, parcel: &mut Parcel, at: &mut usize) -> Result<(), Broken> {
        while let Some(head) = link.head(*at)? {
            let end = head.from + head.length;
            let there = link.received().len();
            let long = head.length > self.packet_max;
            if there < end && !(long && there >= head.from + CUT_BYTES) {
                break;
            }
            let body = &link.received()[head.from..end.min(there)];
            let read = match packet::read(head.first, body) {
                // Of a long one that is cut the properties may be longer still.
                Err(_) if there < end && there - head.from < PROPERTIES_BYTES_MAX => break,
                read => read?,
            };
            match read {
                Packet::Publish(publish) => self.take_message(parcel, &publish, head, body, long),
                other => check(&other, &self.filters, self.quality)?,
            }
            link.skip(end - end.min(there));
            *at = end.min(there);
        }
        Ok(())
    }

    /// Takes a message, unless it has come before.
    fn take_message(&mut self, parcel: &mut Parcel, publish: &Publish, head: Head, body: &[u8], long: bool) {
        if let Some(id) = publish.id {
            // The id stands between the two.
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&body[publish.topic.clone()]);
            checksum.update(&body[publish.payload..]);
            let checksum = checksum.finalize();
            if self.ledger.is_known(id, publish.again, checksum) {
                return;
            }
            self.ledger.take(self.last + 1, id, checksum);
        }
        self.last += 1;
        let place = |from: usize, to: usize| Place { from: (head.from + from) as u32, length: (to - from) as i32 };
        let to = if long { body.len().min(publish.payload + SHOWN_BYTES) } else { body.len() };
        parcel.entries.push(Entry {
            topic: place(publish.topic.start, publish.topic.end),
            payload: place(publish.payload, to),
            quality: u8::from(publish.id.is_some()),
            retained: publish.retained,
            cut: long.then_some(head.length as u32),
        });
    }
}

/// Looks at what is no message.
fn check(packet: &Packet, filters: &[String], quality: Quality) -> Result<(), Broken> {
    match packet {
        Packet::Subscribed { reasons, said } => {
            for (filter, granted) in filters.iter().zip(reasons) {
                if *granted >= 0x80 {
                    let why = reason::shown(*granted, said);
                    return Err(Broken::Lasting(format!("the broker refuses the topic filter '{filter}': {why}")));
                }
                if *granted < quality.number() {
                    return Err(Broken::Lasting(format!("the broker gives '{filter}' with quality 0 only; 'qos' = '0' bears that")));
                }
            }
            Ok(())
        }
        Packet::Disconnect { reason: code, said } => {
            let why = format!("the broker has ended the connection: {}", reason::shown(*code, said));
            if reason::lasting(*code) {
                return Err(Broken::Lasting(why));
            }
            Err(Broken::Passing(why))
        }
        _ => Ok(()),
    }
}
