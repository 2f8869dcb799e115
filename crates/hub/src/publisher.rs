//! One connection of a publisher.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde_json::Value;
use tidemill_connect::Waker;

use crate::error::{HubError, Refusal};
use crate::fit::Fit;
use crate::inlet::{PUBLISHERS_MAX, PublisherState, State, kinds_of};
use crate::stream::{Mark, ROW_KIND, Stream};

/// So many names are forgotten together where there are too many, so that not each new one looks through all of them.
const FORGOTTEN_AT_ONCE: usize = PUBLISHERS_MAX / 100;

/// Puts rows into a stream. Dropped, it is disconnected; what it has sent stays.
pub struct Publisher {
    stream: Arc<Stream>,
    id: String,
    run: u64,
    slot: u64,
    session: u64,
    fit: Fit,
    /// The last column says what rows do.
    changes: bool,
}

/// Rows on their way into a stream.
#[derive(Debug)]
pub struct Incoming {
    /// The rows.
    pub batch: RecordBatch,
    /// The number of the first, counted from the publisher's first row ever, if it counts them.
    pub offset: Option<u64>,
    /// What the publisher wants to be told when it shall go on behind them.
    pub position: Option<Value>,
    /// The bytes in which they came.
    pub bytes: u64,
    /// When, by [`tidemill_block::clock::now_ns`].
    pub arrival_ns: u64,
}

/// What became of rows.
#[derive(Debug)]
pub enum Sent {
    /// They are in the queue, or were there before.
    Taken,
    /// The queue is full. The waker is called when there is room; the rows come back, with the inlet's
    /// columns.
    Full(Incoming),
}

impl Publisher {
    pub(crate) fn open(stream: &Arc<Stream>, id: &str, waker: Waker) -> Result<Self, HubError> {
        let mut guard = stream.inlet.lock();
        let state = &mut *guard;
        let Some(run) = &state.run else {
            return Err(HubError::NotPublished(format!("no running job reads stream '{}'; start its job and try again", stream.name())));
        };
        let (schema, changes) = (run.schema.clone(), run.changes);
        let known = if id.is_empty() { None } else { state.names.get(id).copied() };
        if known.is_none() && !id.is_empty() && state.names.len() >= PUBLISHERS_MAX {
            state.forget_finished(FORGOTTEN_AT_ONCE);
        }
        let slot = match known {
            Some(slot) => slot,
            None if !id.is_empty() && state.names.len() >= PUBLISHERS_MAX => {
                return Err(HubError::TooMany(format!(
                    "stream '{}' knows {PUBLISHERS_MAX} publishers by name and takes no further name; publish without a name, under one used before, or have one forgotten that is not coming back (DELETE /v1/streams/{{stream}}/publishers/{{name}})",
                    stream.name()
                )));
            }
            None => {
                let slot = state.next_slot;
                state.next_slot += 1;
                let name: Option<Arc<str>> = (!id.is_empty()).then(|| id.into());
                if let Some(name) = &name {
                    state.names.insert(name.clone(), slot);
                }
                state.publishers.insert(slot, PublisherState::new(name));
                slot
            }
        };
        state.sessions += 1;
        let session = state.sessions;
        let publisher = state.publishers.get_mut(&slot).expect("found or inserted above");
        publisher.session = session;
        publisher.room_wanted = false;
        let earlier = publisher.waker.replace(waker);
        let run = state.runs;
        state.set_ahead(slot, (0, 0));
        drop(guard);
        if let Some(earlier) = earlier {
            earlier.wake();
        }
        let fit = Fit::new(stream.name(), schema);
        Ok(Publisher { stream: stream.clone(), id: id.to_string(), run, slot, session, fit, changes })
    }

    /// The columns that the stream takes.
    pub fn schema(&self) -> SchemaRef {
        self.fit.wanted()
    }

    /// Looks whether rows of a schema can be taken.
    ///
    /// # Errors
    /// [`HubError::Schema`] with both lists of columns.
    pub fn accepts(&mut self, schema: &SchemaRef) -> Result<(), HubError> {
        self.fit.accepts(schema).inspect_err(|_| self.stream.count_refused(Refusal::Schema))
    }

    /// How many of its rows the stream has, and the position that came with them: where to go on. The
    /// mark may lie before rows that were taken, if only there the publisher said where it stands; rows
    /// that are sent again are cut off.
    pub fn taken(&self) -> Mark {
        self.with(|publisher| publisher.taken.mark()).unwrap_or_default()
    }

    /// How many of its rows are safe: a checkpoint that covers them was committed.
    pub fn acknowledged(&self) -> u64 {
        self.check().unwrap_or_default()
    }

    /// As [`Publisher::acknowledged`], for one that only waits.
    ///
    /// # Errors
    /// [`HubError::Gone`], [`HubError::Replaced`].
    pub fn check(&self) -> Result<u64, HubError> {
        self.with(|publisher| publisher.acknowledged)
    }

    fn with<T>(&self, look: impl FnOnce(&PublisherState) -> T) -> Result<T, HubError> {
        let mut state = self.stream.inlet.lock();
        self.own(&mut state).map(|publisher| look(publisher))
    }

    /// What the stream knows of this publisher.
    fn own<'a>(&self, state: &'a mut State) -> Result<&'a mut PublisherState, HubError> {
        let running = state.run.is_some() && state.runs == self.run;
        match state.publishers.get_mut(&self.slot) {
            Some(publisher) if running && publisher.session == self.session => Ok(publisher),
            Some(_) if running => Err(HubError::Replaced(format!(
                "another publisher has connected to stream '{}' as '{}', and there is one of each name",
                self.stream.name(),
                self.id
            ))),
            _ => Err(HubError::Gone(format!(
                "the job that reads stream '{}' has ended or restarts; connect again and go on from where it says",
                self.stream.name()
            ))),
        }
    }

    /// Gives rows to the stream; never waits.
    ///
    /// # Errors
    /// [`HubError::Schema`]; [`HubError::Gap`] if their offset lies behind the next row; [`HubError::Gone`];
    /// [`HubError::Replaced`].
    pub fn try_send(&mut self, rows: Incoming) -> Result<Sent, HubError> {
        self.send(rows, false)
    }

    /// As [`Publisher::try_send`], of rows that are put into the queue even if it is full: for one that asks
    /// [`Publisher::has_room`] before it takes more in. So its latest rows wait where the job finds them, without a wake-up between.
    ///
    /// # Errors
    /// As [`Publisher::try_send`].
    pub fn send_ahead(&mut self, rows: Incoming) -> Result<(), HubError> {
        self.send(rows, true).map(|_| ())
    }

    /// Whether there is room beside what was sent ahead. If not, the waker is called when there is.
    ///
    /// # Errors
    /// [`HubError::Gone`], [`HubError::Replaced`].
    pub fn has_room(&self) -> Result<bool, HubError> {
        let mut guard = self.stream.inlet.lock();
        let state = &mut *guard;
        self.own(state)?;
        if state.is_full() {
            state.room_wanted = true;
            self.own(state)?.room_wanted = true;
            return Ok(false);
        }
        Ok(true)
    }

    fn send(&mut self, rows: Incoming, ahead: bool) -> Result<Sent, HubError> {
        let Incoming { batch, offset, position, bytes, arrival_ns } = rows;
        if self.id.is_empty() && (offset.is_some() || position.is_some()) {
            return Err(HubError::Schema(format!(
                "rows for stream '{}' have an offset or a position, but the publisher has no name under which they could be kept; name it, or leave them out",
                self.stream.name()
            )));
        }
        let stream = &self.stream;
        let batch = self.fit.fit(batch).map_err(|(why, error)| {
            stream.count_refused(why);
            error
        })?;
        if self.changes
            && let Err((code, row)) = kinds_of(&batch)
        {
            self.stream.count_refused(Refusal::Malformed);
            return Err(HubError::Schema(format!(
                "rows for stream '{}': row {}: column '{ROW_KIND}' is {code}, expected 0 (+I), 1 (-U), 2 (+U), 3 (-D) or NULL",
                self.stream.name(),
                row + 1
            )));
        }
        let inlet = &self.stream.inlet;
        let mut guard = inlet.lock();
        let state = &mut *guard;
        let taken = self.own(state)?.taken.rows;
        let rows = batch.num_rows() as u64;
        let first = offset.unwrap_or(taken);
        if first > taken {
            self.stream.count_refused(Refusal::Gap);
            return Err(HubError::Gap { stream: self.stream.name().to_string(), publisher: self.id.clone(), expected: taken, got: first });
        }
        let repeated = rows.min(taken - first);
        // Without rows left only a position at the very end says anything new.
        if repeated == rows && (rows > 0 || position.is_none() || first < taken) {
            drop(guard);
            inlet.count_duplicates(repeated);
            return Ok(Sent::Taken);
        }
        if !ahead && state.is_full() {
            state.room_wanted = true;
            self.own(state)?.room_wanted = true;
            return Ok(Sent::Full(Incoming { batch, offset, position, bytes, arrival_ns }));
        }
        let (left, batch) = match repeated {
            0 => (bytes, batch),
            _ => {
                let left = (bytes as u128 * (rows - repeated) as u128 / rows as u128) as u64;
                (left, batch.slice(repeated as usize, (rows - repeated) as usize))
            }
        };
        let reader = state.push(self.slot, ahead, batch, taken, position, left, arrival_ns);
        drop(guard);
        if let Some(reader) = reader {
            reader.wake();
        }
        inlet.count(rows - repeated, left);
        if repeated > 0 {
            inlet.count_duplicates(repeated);
        }
        Ok(Sent::Taken)
    }

    /// Its name is not forgotten to make room for others: for one that counts its rows without being told where to go on. If it were
    /// forgotten between two connections, rows that come again would be taken twice, and new ones be a gap.
    pub fn keep_name(&self) {
        let mut state = self.stream.inlet.lock();
        if let Ok(publisher) = self.own(&mut state) {
            publisher.kept = true;
        }
    }

    /// Asks for a checkpoint soon; the waker is called when [`Publisher::acknowledged`] has moved.
    pub fn urge(&self) {
        self.stream.inlet.urge(self.slot, self.session);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut guard = self.stream.inlet.lock();
        let state = &mut *guard;
        let ended = state.sessions + 1;
        let Ok(publisher) = self.own(state) else { return };
        publisher.session = 0;
        publisher.ended = ended;
        publisher.waker = None;
        publisher.room_wanted = false;
        let nameless = publisher.name.is_none();
        state.sessions = ended;
        state.set_ahead(self.slot, (0, 0));
        if nameless {
            state.publishers.remove(&self.slot);
        }
    }
}
