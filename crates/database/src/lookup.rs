//! Looking rows up by key: calls of a block of keys each, answered by a few threads with a connection each.
//!
//! What does not live here: how many calls are under way, retries, time limits and the cache; they are the
//! operator's.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use tidemill_connect::{Answer, ConnectError, Failure, Found, Lookup, LookupContext, LookupOptions, LookupTable, Waker};

use crate::driver::{DbError, Target};
use crate::session::{Access, Session};
use crate::sink::key_rows;

/// Keys of a call: enough that what a call costs by itself does not show, few enough for a list in a
/// statement.
const KEYS_MAX: usize = 1024;
/// How long a lookup that is not wanted any more waits for its threads. One whose statement takes longer is left to itself: what ends the
/// job shall be known.
const LEAVE_AFTER: Duration = Duration::from_secs(3);

/// A table that is looked up.
pub struct JdbcLookupTable {
    owner: String,
    access: Access,
    target: Target,
    options: LookupOptions,
    connections: usize,
}

impl JdbcLookupTable {
    /// `owner` is the table's name in messages, `connections` how many each shard has.
    pub fn new(owner: String, access: Access, target: Target, options: LookupOptions, connections: usize) -> Self {
        JdbcLookupTable { owner, access, target, options, connections }
    }
}

impl LookupTable for JdbcLookupTable {
    fn keys_max(&self) -> usize {
        KEYS_MAX
    }

    fn open(&self, context: LookupContext) -> Result<Box<dyn Lookup>, ConnectError> {
        let mut places = Vec::with_capacity(context.keys.fields().len());
        for key in context.keys.fields() {
            let found = context.columns.fields().iter().position(|c| c.name() == key.name() && c.data_type() == key.data_type());
            places.push(found.ok_or_else(|| {
                ConnectError::new(format!("internal error: {} has no column {} {}", self.owner, key.name(), key.data_type()))
            })?);
        }
        let (sender, calls) = unbounded();
        let asked = Asked { target: self.target.clone(), columns: context.columns.clone(), places };
        let shared = Arc::new(Shared { asked, access: self.access.clone(), wake: context.wake, calls, done: Mutex::default() });
        let (alive, ended) = bounded(0);
        let (threads, threads_max) = (Vec::new(), self.connections);
        Ok(Box::new(JdbcLookup { shared, sender: Some(sender), threads, threads_max, alive: Some(alive), ended, open: 0 }))
    }

    fn options(&self) -> &LookupOptions {
        &self.options
    }
}

/// What is asked by, and what for.
struct Asked {
    target: Target,
    columns: SchemaRef,
    /// The key columns among them.
    places: Vec<usize>,
}

/// What a lookup and its threads have in common.
struct Shared {
    asked: Asked,
    access: Access,
    wake: Waker,
    /// The caller bounds how many there are.
    calls: Receiver<(u64, RecordBatch)>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    answers: Vec<Answer>,
    /// Calls whose answers nobody wants.
    cancelled: HashSet<u64>,
}

impl Shared {
    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers calls until there will be none.
    fn serve(&self) {
        let mut session = Session::new(self.access.clone(), Arc::default());
        for (call, keys) in &self.calls {
            if self.done().cancelled.remove(&call) {
                continue;
            }
            let result = self.asked.answer(&mut session, &keys).map_err(|e| match e.passes() {
                true => Failure::passing(e.message),
                false => Failure::lasting(e.message),
            });
            let mut done = self.done();
            if !done.cancelled.remove(&call) {
                done.answers.push(Answer { call, result });
            }
            drop(done);
            self.wake.wake();
        }
    }
}

impl Asked {
    fn answer(&self, session: &mut Session, keys: &RecordBatch) -> Result<Found, DbError> {
        let all: Vec<usize> = (0..keys.num_columns()).collect();
        let asked = key_rows(keys, &all)?;
        let mut by_key: HashMap<&[u8], Vec<u32>> = HashMap::with_capacity(keys.num_rows());
        let mut distinct = Vec::with_capacity(keys.num_rows());
        for row in 0..keys.num_rows() {
            let origins = by_key.entry(asked.row(row).data()).or_default();
            if origins.is_empty() {
                distinct.push(row as u32);
            }
            origins.push(row as u32);
        }
        let once = if distinct.len() == keys.num_rows() { keys.clone() } else { take_record_batch(keys, &UInt32Array::from(distinct))? };
        let rows = session.once(|connection| connection.look_up(&self.target, &once, &self.columns))?;
        let found = key_rows(&rows, &self.places)?;
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            // A database may take more for equal than is (by its collation); such rows were not asked for.
            let origins = by_key.get(found.row(row).data()).into_iter().flatten();
            pairs.extend(origins.map(|origin| (*origin, row as u32)));
        }
        pairs.sort_unstable();
        let (origins, order): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
        let in_order = order.len() == rows.num_rows() && order.iter().enumerate().all(|(i, row)| i == *row as usize);
        let rows = if in_order { rows } else { take_record_batch(&rows, &UInt32Array::from(order))? };
        Ok(Found { rows, origins })
    }
}

/// The lookup of a shard. Its threads end with it.
struct JdbcLookup {
    shared: Arc<Shared>,
    /// There until it ends.
    sender: Option<Sender<(u64, RecordBatch)>>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    /// Nothing is sent: each thread has one of these until its connection is closed, which `ended` sees.
    alive: Option<Sender<()>>,
    ended: Receiver<()>,
    /// Calls without an answer.
    open: usize,
}

impl Lookup for JdbcLookup {
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), ConnectError> {
        self.open += 1;
        if self.threads.len() < self.threads_max && self.threads.len() < self.open {
            let (shared, alive) = (self.shared.clone(), self.alive.clone());
            let serve = move || {
                shared.serve();
                drop(alive);
            };
            let started = thread::Builder::new().name("tidemill-jdbc".into()).spawn(serve);
            self.threads.push(started.map_err(|e| ConnectError::io("starting a thread that looks rows up", &e))?);
        }
        let sent = self.sender.as_ref().is_some_and(|sender| sender.send((call, keys.clone())).is_ok());
        if sent { Ok(()) } else { Err(ConnectError::new("internal error: nobody answers lookups any more")) }
    }

    fn cancel(&mut self, call: u64) {
        self.open = self.open.saturating_sub(1);
        let mut done = self.shared.done();
        let before = done.answers.len();
        done.answers.retain(|answer| answer.call != call);
        if done.answers.len() == before {
            done.cancelled.insert(call);
        }
    }

    fn finished(&mut self, into: &mut Vec<Answer>) {
        let mut done = self.shared.done();
        self.open = self.open.saturating_sub(done.answers.len());
        into.append(&mut done.answers);
    }
}

impl Drop for JdbcLookup {
    /// Connections are closed in good order, before the process ends.
    fn drop(&mut self) {
        self.sender = None;
        self.alive = None;
        // Nobody waits for what was not begun.
        self.shared.calls.try_iter().for_each(drop);
        let all = self.ended.recv_timeout(LEAVE_AFTER) == Err(RecvTimeoutError::Disconnected);
        for thread in self.threads.drain(..) {
            if all || thread.is_finished() {
                // What it panicked with was printed.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
