//! Calls: when they begin, what becomes of their answers, further attempts, time limits.
//!
//! A question is what one call asks. A call that fails and may go better is made anew after a pause that
//! doubles, half of it left to chance so that many that failed together do not come back together; the time
//! limit covers all of its attempts. Not here: which rows wait for it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_state::hash;

use super::cache::Asks;
use super::limit::Limit;
use super::queue::{Question, Queue};
use super::{AskSpec, LookupSpec};
use crate::OperatorError;
use crate::call::{Answered, CallStats, Calls, Failure};

/// The longest pause before a further attempt that is not asked for by the other side.
const PAUSE_MAX: Duration = Duration::from_secs(10);

struct UnderWay {
    question: Question,
    started_ns: u64,
}

/// Calls under way, and what is yet to be asked.
pub(super) struct Asking {
    spec: AskSpec,
    name: String,
    key_columns: SchemaRef,
    queue: Queue,
    limit: Limit,
    under_way: HashMap<u64, UnderWay>,
    /// What is to be asked again, by when, ns, and a number.
    later: BTreeMap<(u64, u64), Question>,
    /// No call under way is over its time before this.
    deadline_ns: u64,
    /// There was more to ask than the limit let through.
    starved: bool,
    answers: Vec<Answered>,
    stats: CallStats,
    /// Pauses made up, which is also what chance is made of.
    pauses: u64,
}

impl Asking {
    /// Nothing asked yet.
    pub fn new(spec: &LookupSpec) -> Self {
        let asking = spec.asking.clone();
        Asking {
            name: spec.name.clone(),
            key_columns: spec.key_columns.clone(),
            queue: Queue::new(asking.per_partition.unwrap_or(usize::MAX)),
            limit: asking.capacity.map_or_else(Limit::adaptive, Limit::fixed),
            under_way: HashMap::new(),
            later: BTreeMap::new(),
            deadline_ns: u64::MAX,
            starved: false,
            answers: Vec::new(),
            stats: CallStats::default(),
            pauses: 0,
            spec: asking,
        }
    }

    /// These asks of rows of a partition are to be asked.
    pub fn push(&mut self, partition: Option<u32>, asks: &[u32]) {
        // Without a bound by partition they all wait in one line.
        let partition = self.spec.per_partition.and(partition).unwrap_or(0);
        self.queue.push(partition, asks);
    }

    /// Keys that wait to be asked.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Calls that may be under way.
    pub fn allowed(&self) -> usize {
        self.limit.allowed()
    }

    /// When there is something to do of which no answer tells.
    pub fn due(&self) -> Option<u64> {
        let later = self.later.first_key_value().map_or(u64::MAX, |((due, _), _)| *due);
        Some(later.min(self.deadline_ns)).filter(|due| *due != u64::MAX)
    }

    /// Counts; those of rows are the caller's.
    pub fn stats(&self) -> CallStats {
        CallStats { in_flight: self.under_way.len() as u64, limit: self.limit.allowed() as u64, ..self.stats }
    }

    /// Takes the answers that have come; asks that are answered for good are appended to `settled`.
    ///
    /// # Errors
    /// A key that cannot be had, if that fails the job; an answer that does not fit.
    pub fn collect(&mut self, calls: &mut dyn Calls, asks: &mut Asks, now_ns: u64, settled: &mut Vec<u32>) -> Result<(), OperatorError> {
        let mut answers = std::mem::take(&mut self.answers);
        calls.finished(&mut answers);
        for Answered { call, result } in answers.drain(..) {
            // One that was given up may have been answered in the meantime.
            let Some(UnderWay { question, started_ns }) = self.under_way.remove(&call) else { continue };
            let trouble = matches!(&result, Err(failure) if failure.retry);
            self.limit.ended(now_ns, now_ns.saturating_sub(started_ns), trouble, self.starved);
            self.queue.ended(question.partition);
            match result {
                Ok(found) => {
                    asks.take_in(&question.asks, &found).map_err(|e| OperatorError::new(format!("{}: {e}", self.name)))?;
                    self.found(question, asks, now_ns, settled);
                }
                Err(failure) => self.failed(question, failure, asks, now_ns, settled)?,
            }
        }
        self.answers = answers;
        Ok(())
    }

    /// Settles what a call has answered, but for keys that are to be tried again since there was nothing.
    fn found(&mut self, question: Question, asks: &mut Asks, now_ns: u64, settled: &mut Vec<u32>) {
        let mut again = Vec::new();
        for ask in question.asks {
            if let Some((attempts, _)) = self.spec.misses
                && !asks.has_rows(ask)
                && asks.missed(ask) <= attempts
            {
                again.push(ask);
            } else {
                asks.settle(ask, now_ns, true);
                settled.push(ask);
            }
        }
        if let Some((_, pause)) = self.spec.misses
            && !again.is_empty()
        {
            // Each of these attempts has the whole time.
            let question = Question { asks: again, partition: question.partition, begun_ns: 0, attempts: 0 };
            self.ask_later(question, now_ns + pause.as_nanos() as u64);
        }
    }

    fn failed(
        &mut self,
        mut question: Question,
        failure: Failure,
        asks: &mut Asks,
        now_ns: u64,
        settled: &mut Vec<u32>,
    ) -> Result<(), OperatorError> {
        question.attempts += 1;
        if !failure.retry || question.attempts > self.spec.retries {
            return self.give_up(question, &failure.reason, asks, now_ns, settled);
        }
        let pause = self.pause(question.attempts).max(failure.after.unwrap_or_default());
        let due = now_ns.saturating_add(pause.as_nanos() as u64);
        if due >= self.deadline(&question) {
            let reason = format!("{}; another attempt would come after the time limit of {:?}", failure.reason, self.spec.timeout);
            return self.give_up(question, &reason, asks, now_ns, settled);
        }
        self.ask_later(question, due);
        Ok(())
    }

    /// How long to wait before attempt number `attempt`, 1 being the first after the call itself.
    fn pause(&mut self, attempt: u32) -> Duration {
        self.pauses += 1;
        let whole = self.spec.retry_delay.saturating_mul(1 << (attempt - 1).min(20)).min(PAUSE_MAX);
        let chance = (hash::mix(self.pauses) >> 11) as f64 / (1_u64 << 53) as f64;
        whole.mul_f64(0.5 + 0.5 * chance)
    }

    fn ask_later(&mut self, question: Question, due_ns: u64) {
        self.stats.retries += 1;
        self.later.insert((due_ns, self.stats.retries), question);
    }

    fn deadline(&self, question: &Question) -> u64 {
        question.begun_ns.saturating_add(self.spec.timeout.as_nanos() as u64)
    }

    /// A question has no answer and will have none.
    fn give_up(
        &mut self,
        question: Question,
        reason: &str,
        asks: &mut Asks,
        now_ns: u64,
        settled: &mut Vec<u32>,
    ) -> Result<(), OperatorError> {
        self.stats.failures += 1;
        if self.spec.fail {
            let key = self.describe(&question, asks)?;
            let tried = if question.attempts > 1 { format!(" ({} attempts)", question.attempts) } else { String::new() };
            return Err(OperatorError::new(format!(
                "looking up {key} in {}: {reason}{tried}; 'lookup.on-failure' = 'null' lets such rows pass as if nothing were found",
                self.name
            )));
        }
        for ask in question.asks {
            asks.settle(ask, now_ns, false);
            settled.push(ask);
        }
        Ok(())
    }

    /// The keys of a question for messages: `id = 7 (and 3 more)`.
    fn describe(&self, question: &Question, asks: &Asks) -> Result<String, OperatorError> {
        let columns = asks.keys(&question.asks[..1])?;
        let options = FormatOptions::new().with_null("NULL");
        let mut key = String::new();
        for (field, column) in self.key_columns.fields().iter().zip(&columns) {
            let value = ArrayFormatter::try_new(column.as_ref(), &options)?.value(0).to_string();
            key += &format!("{}{} = {value}", if key.is_empty() { "" } else { ", " }, field.name());
        }
        if question.asks.len() > 1 {
            key += &format!(" (and {} more)", question.asks.len() - 1);
        }
        Ok(key)
    }

    /// Gives up calls that take too long, and puts questions whose pause is over into the queue. The time of calls begins anew if they
    /// were `preparing` ([`Calls::prepares`]) just before answers were last taken: what has become ready since then has answered nobody
    /// yet.
    ///
    /// # Errors
    /// A key that cannot be had, if that fails the job.
    pub fn expire(
        &mut self,
        calls: &mut dyn Calls,
        preparing: bool,
        asks: &mut Asks,
        now_ns: u64,
        settled: &mut Vec<u32>,
    ) -> Result<(), OperatorError> {
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now_ns
        {
            let question = entry.remove();
            self.queue.push_again(question);
        }
        if now_ns < self.deadline_ns {
            return Ok(());
        }
        if preparing {
            self.under_way.values_mut().for_each(|w| w.question.begun_ns = now_ns.max(1));
        }
        let mut over: Vec<u64> =
            self.under_way.iter().filter(|(_, w)| self.deadline(&w.question) <= now_ns).map(|(call, _)| *call).collect();
        over.sort_unstable();
        for call in over {
            let Some(UnderWay { mut question, started_ns }) = self.under_way.remove(&call) else { continue };
            calls.cancel(call);
            self.limit.ended(now_ns, now_ns.saturating_sub(started_ns), true, self.starved);
            self.queue.ended(question.partition);
            question.attempts += 1;
            let reason = format!("no answer within {:?} ('lookup.timeout')", self.spec.timeout);
            self.give_up(question, &reason, asks, now_ns, settled)?;
        }
        self.deadline_ns = self.under_way.values().map(|w| self.deadline(&w.question)).min().unwrap_or(u64::MAX);
        Ok(())
    }

    /// Begins calls, as many as there may be; whether there were any.
    ///
    /// # Errors
    /// A key that cannot be had, if that fails the job.
    pub fn start(&mut self, calls: &mut dyn Calls, asks: &mut Asks, now_ns: u64, settled: &mut Vec<u32>) -> Result<bool, OperatorError> {
        let before = self.stats.calls;
        while self.under_way.len() < self.limit.allowed()
            && let Some(mut question) = self.queue.next(self.spec.keys_max.max(1))
        {
            if question.begun_ns == 0 {
                // 0 stands for never.
                question.begun_ns = now_ns.max(1);
            } else if self.deadline(&question) <= now_ns {
                self.queue.ended(question.partition);
                let reason = format!("no answer within {:?} ('lookup.timeout')", self.spec.timeout);
                self.give_up(question, &reason, asks, now_ns, settled)?;
                continue;
            }
            let keys = RecordBatch::try_new(self.key_columns.clone(), asks.keys(&question.asks)?)?;
            self.stats.calls += 1;
            let call = self.stats.calls;
            if let Err(e) = calls.start(call, &keys) {
                self.queue.ended(question.partition);
                question.attempts += 1;
                self.give_up(question, &e.to_string(), asks, now_ns, settled)?;
                continue;
            }
            self.deadline_ns = self.deadline_ns.min(self.deadline(&question));
            self.under_way.insert(call, UnderWay { question, started_ns: now_ns });
        }
        self.starved = self.queue.is_ready();
        Ok(self.stats.calls > before)
    }
}
