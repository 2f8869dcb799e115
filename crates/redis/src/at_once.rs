//! Entries that are added at once, at least once: what the server has not confirmed is kept, and sent again over a new
//! connection when one breaks. A checkpoint waits until everything is confirmed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError, Writer, WriterStats};

use crate::address::Address;
use crate::connection::{Connection, Trouble, named};
use crate::entries::{EntryEncoder, Trim};
use crate::outage::Outage;
use crate::resp::{self, Reply};

/// Bytes of commands sent at once.
const BATCH_BYTES: usize = 256 << 10;
/// Batches under way before the oldest is waited for: enough to keep a server busy.
const BATCHES_MAX: usize = 8;

/// How long a job that was asked to stop waits for a server that is away.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Whether the job comes to its end.
pub struct End {
    /// It has failed.
    pub cancelled: Arc<AtomicBool>,
    /// It was asked to stop.
    pub stopping: Arc<AtomicBool>,
}

/// Commands that are sent together.
#[derive(Default)]
struct Batch {
    commands: Vec<u8>,
    entries: usize,
}

/// Writes the rows of one shard.
pub struct AtOnce {
    address: Address,
    stream: String,
    trim: Trim,
    encoder: EntryEncoder,
    connection: Option<Connection>,
    outage: Outage,
    /// Not sent yet.
    open: Batch,
    /// Sent and not confirmed, and their bytes.
    sent: VecDeque<Batch>,
    held: usize,
    held_max: usize,
    end: End,
    bytes: u64,
}

impl AtOnce {
    /// A writer to a stream that holds at most so many bytes.
    pub fn new(address: Address, stream: String, trim: Trim, encoder: EntryEncoder, held_max: usize, end: End) -> Self {
        let outage = Outage::new(format!("{} (writing stream '{stream}')", address.name()));
        AtOnce {
            address,
            stream,
            trim,
            encoder,
            connection: None,
            outage,
            open: Batch::default(),
            sent: VecDeque::new(),
            held: 0,
            held_max,
            end,
            bytes: 0,
        }
    }

    /// Sends what is gathered; waits while there is too much that is not confirmed.
    fn send(&mut self) -> Result<(), ConnectError> {
        if self.open.entries == 0 {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.open);
        let sent = self.connection.as_mut().map(|connection| connection.send(&batch.commands));
        self.held += batch.commands.len();
        self.sent.push_back(batch);
        match sent {
            Some(Ok(())) => {}
            Some(Err(trouble)) => self.mend(trouble)?,
            None => {
                if let Err(trouble) = self.again() {
                    self.mend(trouble)?;
                }
            }
        }
        while self.held > self.held_max || self.sent.len() > BATCHES_MAX {
            self.confirm()?;
        }
        Ok(())
    }

    /// Waits until the server has confirmed the oldest batch.
    fn confirm(&mut self) -> Result<(), ConnectError> {
        while let Some(batch) = self.sent.front() {
            let confirmed = match &mut self.connection {
                Some(connection) => confirmed(connection, batch.entries),
                None => Err(Trouble::Away("the connection is closed".into())),
            };
            match confirmed {
                Ok(()) => {
                    self.outage.over();
                    self.held -= batch.commands.len();
                    self.sent.pop_front();
                    return Ok(());
                }
                Err(trouble) => self.mend(trouble)?,
            }
        }
        Ok(())
    }

    /// After a connection broke: makes another, for as long as it takes, and sends what is not confirmed once more.
    fn mend(&mut self, mut trouble: Trouble) -> Result<(), ConnectError> {
        loop {
            self.connection = None;
            let stops = self.end.stopping.load(Ordering::Relaxed) && self.outage.lasts() >= STOP_PATIENCE;
            let why = match &trouble {
                Trouble::Away(why) if !stops && !self.end.cancelled.load(Ordering::Relaxed) => why,
                Trouble::Away(why) => {
                    let rows: usize = self.sent.iter().map(|batch| batch.entries).sum();
                    return Err(ConnectError::new(format!(
                        "stream '{}': the job is being stopped while {} is away ({why}); it has not confirmed {rows} rows",
                        self.stream,
                        self.address.name()
                    )));
                }
                Trouble::Refused(_) => return Err(named(&self.address, &trouble).at(format_args!("writing stream '{}'", self.stream))),
            };
            let cancelled = &self.end.cancelled;
            self.outage.failed(why, || cancelled.load(Ordering::Relaxed));
            match self.again() {
                Ok(()) => return Ok(()),
                Err(again) => trouble = again,
            }
        }
    }

    /// Connects, and sends what is not confirmed.
    fn again(&mut self) -> Result<(), Trouble> {
        let mut connection = Connection::open(&self.address)?;
        for batch in &self.sent {
            connection.send(&batch.commands)?;
        }
        self.connection = Some(connection);
        Ok(())
    }
}

/// Takes the answers to so many commands.
fn confirmed(connection: &mut Connection, count: usize) -> Result<(), Trouble> {
    for _ in 0..count {
        if let Reply::Error(text) = connection.receive()? {
            return Err(Trouble::of_answer(&text));
        }
    }
    Ok(())
}

impl Writer for AtOnce {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        let trim = self.trim.parts();
        let entries = self.encoder.encode(block)?;
        let mut begin = Vec::new();
        resp::bulk(&mut begin, b"XADD");
        resp::bulk(&mut begin, self.stream.as_bytes());
        trim.iter().for_each(|part| resp::bulk(&mut begin, part.as_bytes()));
        resp::bulk(&mut begin, b"*");
        let mut full = Vec::new();
        for (fields, parts) in entries.iter() {
            self.bytes += fields.len() as u64;
            resp::command(&mut self.open.commands, 3 + trim.len() + parts);
            self.open.commands.extend_from_slice(&begin);
            self.open.commands.extend_from_slice(fields);
            self.open.entries += 1;
            if self.open.commands.len() >= BATCH_BYTES {
                full.push(std::mem::take(&mut self.open));
            }
        }
        let rest = std::mem::take(&mut self.open);
        for batch in full {
            self.open = batch;
            self.send()?;
        }
        self.open = rest;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.send()?;
        // Here failures are heard of, while the newest is under way.
        while self.sent.len() > 1 {
            self.confirm()?;
        }
        Ok(())
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.send()?;
        while !self.sent.is_empty() {
            self.confirm()?;
        }
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.bytes }
    }
}
