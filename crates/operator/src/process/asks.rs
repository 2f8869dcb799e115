//! Calls of a function to something outside: started with a row, answered later.
//!
//! At most so many are under way, and of each key at most so many; further rows wait. Answers of a key are
//! given to the function in the order in which it asked, unless that is given up. A call that takes too
//! long is given up; one that failed is tried again if that may help. Rows that wait for an answer are part
//! of a checkpoint, whole, and are asked again after a restart. Who makes the calls: [`Calls`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use arrow::array::RecordBatch;
use tidemill_block::clock;

use crate::OperatorError;
use crate::call::{Answered, Calls, Found};

/// How a function's calls are bounded.
#[derive(Clone, Copy, Debug)]
pub struct AskOptions {
    /// The most calls under way at once, in a shard.
    pub capacity: usize,
    /// The most of one key.
    pub per_key: usize,
    /// Answers of a key come in the order in which it asked.
    pub ordered: bool,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// How often a call that failed is tried again.
    pub retries: u32,
    /// How long to wait before each further attempt.
    pub retry_delay: Duration,
}

impl Default for AskOptions {
    fn default() -> Self {
        AskOptions {
            capacity: 100,
            per_key: 1,
            ordered: true,
            timeout: Duration::from_secs(30),
            retries: 3,
            retry_delay: Duration::from_millis(100),
        }
    }
}

/// An answer, as the function gets it.
pub struct Answer {
    /// The key's slot.
    pub slot: u32,
    /// The event time of what asked, ms; [`tidemill_block::NO_WATERMARK`] without event time.
    pub time: i64,
    /// The row that was asked with.
    pub asked: RecordBatch,
    /// What was found, or why nothing was after all attempts.
    pub result: Result<Found, String>,
}

struct Ask {
    slot: u32,
    time: i64,
    row: RecordBatch,
    attempts: u32,
    result: Option<Result<Found, String>>,
}

/// What a key has asked.
#[derive(Default)]
struct OfKey {
    /// In order, those not yet given to the function.
    asked: VecDeque<u64>,
    /// Those that wait for others of the key.
    waiting: VecDeque<u64>,
    /// Admitted and not answered.
    admitted: usize,
}

/// The calls of one function.
pub(super) struct Asks {
    options: AskOptions,
    calls: Option<Box<dyn Calls>>,
    asks: HashMap<u64, Ask>,
    keys: HashMap<u32, OfKey>,
    /// Admitted and not started.
    ready: VecDeque<u64>,
    /// Under way: the number of the call, when it is given up (ns), whose it is. The same time limit for
    /// all makes it a queue.
    flying: HashMap<u64, u64>,
    limits: VecDeque<(u64, u64)>,
    /// To be tried again, when (ns).
    later: VecDeque<(u64, u64)>,
    next_ask: u64,
    next_call: u64,
    /// Further attempts.
    retries: u64,
    /// Asked in vain, after all attempts.
    failures: u64,
    finished: Vec<Answered>,
    bytes: usize,
}

impl Asks {
    pub fn new(options: AskOptions) -> Self {
        assert!(options.capacity > 0 && options.per_key > 0, "calls that may never be made");
        Asks {
            options,
            calls: None,
            asks: HashMap::new(),
            keys: HashMap::new(),
            ready: VecDeque::new(),
            flying: HashMap::new(),
            limits: VecDeque::new(),
            later: VecDeque::new(),
            next_ask: 0,
            next_call: 0,
            retries: 0,
            failures: 0,
            finished: Vec::new(),
            bytes: 0,
        }
    }

    /// Who makes the calls.
    pub fn attach(&mut self, calls: Box<dyn Calls>) {
        self.calls = Some(calls);
    }

    /// Asks with a row of a key.
    pub fn ask(&mut self, slot: u32, time: i64, row: RecordBatch) {
        let id = self.next_ask;
        self.next_ask += 1;
        self.bytes += row.get_array_memory_size() / row.num_rows().max(1) + size_of::<Ask>();
        self.asks.insert(id, Ask { slot, time, row, attempts: 0, result: None });
        let key = self.keys.entry(slot).or_default();
        key.asked.push_back(id);
        if key.admitted < self.options.per_key {
            key.admitted += 1;
            self.ready.push_back(id);
        } else {
            key.waiting.push_back(id);
        }
    }

    /// Starts what can be started, and gives the answers that may be given now.
    pub fn work(&mut self, into: &mut Vec<Answer>) -> Result<(), OperatorError> {
        if self.asks.is_empty() {
            return Ok(());
        }
        let Some(calls) = &mut self.calls else {
            return Err(OperatorError::new("the function asks, but has nobody who makes its calls: ProcessFunction::calls gave none"));
        };
        calls.finished(&mut self.finished);
        let mut answered: Vec<(u64, Result<Found, String>, bool, Duration)> = Vec::new();
        for answer in self.finished.drain(..) {
            let Some(id) = self.flying.remove(&answer.call) else { continue };
            answered.push(match answer.result {
                Ok(found) => (id, Ok(found), false, Duration::ZERO),
                Err(failure) => (id, Err(failure.reason), failure.retry, failure.after.unwrap_or_default()),
            });
        }
        let now = clock::now_ns();
        while let Some((limit, call)) = self.limits.front().copied() {
            let under_way = self.flying.contains_key(&call);
            if under_way && limit > now {
                break;
            }
            self.limits.pop_front();
            if let Some(id) = self.flying.remove(&call) {
                calls.cancel(call);
                answered.push((id, Err(format!("no answer within {:?}", self.options.timeout)), true, Duration::ZERO));
            }
        }
        for (id, result, retry, after) in answered {
            let ask = self.asks.get_mut(&id).expect("asked");
            if result.is_err() && retry && ask.attempts <= self.options.retries {
                self.retries += 1;
                self.later.push_back((now + self.options.retry_delay.max(after).as_nanos() as u64, id));
                continue;
            }
            self.failures += u64::from(result.is_err());
            ask.result = Some(result);
            let slot = ask.slot;
            let key = self.keys.get_mut(&slot).expect("of a key that asks");
            key.admitted -= 1;
            if let Some(next) = key.waiting.pop_front() {
                key.admitted += 1;
                self.ready.push_back(next);
            }
            self.give(slot, id, into);
        }
        // Delays differ only where somebody asked for more; then others wait a little longer.
        while let Some((_, id)) = self.later.front().copied().filter(|(at, _)| *at <= now) {
            self.later.pop_front();
            self.ready.push_back(id);
        }
        while self.flying.len() < self.options.capacity
            && let Some(id) = self.ready.pop_front()
        {
            let ask = self.asks.get_mut(&id).expect("asked");
            ask.attempts += 1;
            let call = self.next_call;
            self.next_call += 1;
            let calls = self.calls.as_mut().expect("checked above");
            calls.start(call, &ask.row)?;
            self.flying.insert(call, id);
            self.limits.push_back((now + self.options.timeout.as_nanos() as u64, call));
        }
        Ok(())
    }

    /// Moves what is answered to the function, in order if that is wanted.
    fn give(&mut self, slot: u32, id: u64, into: &mut Vec<Answer>) {
        let key = self.keys.get_mut(&slot).expect("of a key that asks");
        let mut ids: Vec<u64> = Vec::new();
        if self.options.ordered {
            while let Some(first) = key.asked.front().copied().filter(|id| self.asks[id].result.is_some()) {
                key.asked.pop_front();
                ids.push(first);
            }
        } else {
            key.asked.retain(|other| *other != id);
            ids.push(id);
        }
        if key.asked.is_empty() {
            self.keys.remove(&slot);
        }
        for id in ids {
            let ask = self.asks.remove(&id).expect("asked");
            self.bytes = self.bytes.saturating_sub(ask.row.get_array_memory_size() / ask.row.num_rows().max(1) + size_of::<Ask>());
            into.push(Answer { slot, time: ask.time, asked: ask.row, result: ask.result.expect("answered") });
        }
    }

    /// Rows that wait for an answer.
    pub fn len(&self) -> usize {
        self.asks.len()
    }

    pub fn has(&self, slot: u32) -> bool {
        self.keys.contains_key(&slot)
    }

    /// As many wait as may.
    pub fn full(&self) -> bool {
        self.asks.len() >= 2 * self.options.capacity
    }

    /// The earliest event time of what waits.
    pub fn earliest(&self) -> Option<i64> {
        self.asks.values().map(|a| a.time).min()
    }

    /// When something is due of which nobody will tell, ns.
    pub fn due(&self) -> Option<u64> {
        [self.limits.front(), self.later.front()].into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Slot, time and row of all that waits, in the order in which it was asked.
    pub fn all(&self) -> Vec<(u32, i64, &RecordBatch)> {
        let mut all: Vec<(&u64, &Ask)> = self.asks.iter().collect();
        all.sort_unstable_by_key(|(id, _)| **id);
        all.into_iter().map(|(_, ask)| (ask.slot, ask.time, &ask.row)).collect()
    }

    pub fn stats(&self) -> crate::call::CallStats {
        crate::call::CallStats {
            in_flight: self.flying.len() as u64,
            limit: self.options.capacity as u64,
            calls: self.next_call,
            retries: self.retries,
            failures: self.failures,
            asked: self.next_ask,
            // Nothing that was found is kept.
            hits: 0,
        }
    }

    pub fn memory(&self) -> usize {
        self.bytes
    }
}
