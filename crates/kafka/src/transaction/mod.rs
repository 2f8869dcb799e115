//! Exactly-once: transactions that are committed when a checkpoint is safe.
//!
//! A writer opens a transaction at its first message after a checkpoint. At the next checkpoint it waits
//! until brokers have all messages and leaves the transaction open: its *committable* is the
//! transactional id with the producer's id and epoch. When the checkpoint is safe everywhere, the
//! producer commits. After a crash the producer is gone and librdkafka cannot take up its transaction;
//! but brokers commit for whoever knows these three ([`recover`], over the protocol itself, [`wire`]).
//! Brokers answer such a request the same a second time, so it may be repeated.
//!
//! What keeps this sound:
//!
//! - The producer's id and epoch come from librdkafka's own statistics, not from asking brokers, who
//!   would name a producer that has taken over. librdkafka speaks versions of the protocol in which an
//!   epoch does not change when a transaction ends, so they hold as long as the producer.
//! - A transactional id of checkpoint N is used again only when checkpoint N + 1 is safe. Otherwise a
//!   restart from N would find under this id and epoch a later transaction, half written, and commit it.
//!   Ids are numbers from a pool ([`ids`]), so few are in use: three a writer.
//! - At a restart, ids of the checkpoint are neither taken over nor used until the next one is safe: a
//!   second crash then finds them as they were. All other open transactions of the table are aborted,
//!   which also cuts off a process that is still alive.
//!
//! Brokers abort a transaction that is open for longer than `transaction.timeout.ms`, and allow no more
//! than their `transaction.max.timeout.ms`, by default 15 minutes, which is what is asked for here. A
//! checkpoint interval must be shorter, and a job that was down for longer has lost what its last
//! checkpoint had prepared, if it crashed before the commit; that is an error at the restart.

mod ids;
mod recover;
pub mod wire;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use serde::{Deserialize, Serialize};
use tidemill_connect::{Committable, ConnectError};
use tidemill_format::options::ByteSize;

use self::ids::{Lease, lease};
use crate::access::Access;
use crate::client::lock;
use crate::options::LostTransactions;
use crate::partitions::left;
use crate::producer::{OUTAGE_WAIT, Patience, Producer};
use crate::properties::Connection;

/// What brokers allow at most by default, ms.
const TIMEOUT_MS: u64 = 900_000;
/// How often librdkafka tells its statistics, which have the producer's id.
const STATISTICS_MS: &str = "250";
/// How long to wait for them.
const STATISTICS_WAIT: Duration = Duration::from_secs(30);
/// How long a commit is tried before the job fails; the next start commits then.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long an abort may take when a writer is given up.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);
/// The steps in which that is done.
const ABORT_STEP: Duration = Duration::from_millis(50);

/// What a checkpoint keeps of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Where its messages are.
    pub topic: String,
    /// The transactional id.
    pub id: String,
    /// The producer's id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
}

/// A producer with a transactional id of its own. Fields are dropped in order: the id is free last.
pub struct Transactional {
    producer: Producer,
    open: bool,
    /// For how long brokers leave a transaction open.
    timeout: Duration,
    id: Lease,
}

impl Transactional {
    /// Messages of the open transaction go through this.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// What is behind an error: that which has ended the producer, if something has.
    fn code(&self, error: &KafkaError) -> Option<RDKafkaErrorCode> {
        self.producer.base().client().fatal_error().map(|(code, _)| code).or_else(|| error.rdkafka_error_code())
    }

    fn wrong(&self, doing: &str, error: &KafkaError) -> ConnectError {
        let why = self.code(error).map_or_else(|| error.to_string(), |code| self.producer.explain(code));
        let more = if let KafkaError::Transaction(e) = error { format!(" ({})", e.string()) } else { String::new() };
        ConnectError::new(format!("{doing} transaction '{}': {why}{more}", self.id.name()))
    }
}

impl Drop for Transactional {
    /// A transaction that is not prepared is nobody's: brokers need not wait for its timeout.
    fn drop(&mut self) {
        let deadline = Instant::now() + ABORT_TIMEOUT;
        while std::mem::take(&mut self.open) {
            if let Err(KafkaError::Transaction(e)) = self.producer.base().abort_transaction(ABORT_STEP)
                && e.is_retriable()
                && Instant::now() < deadline
            {
                // Its messages come back as failed, and it goes on when somebody has heard that.
                self.producer.base().poll(ABORT_STEP);
                self.open = true;
            }
        }
    }
}

/// The transactions of a table that is written.
pub struct Transactions {
    connection: Connection,
    topic: String,
    queue: ByteSize,
    /// What the ids begin with.
    base: String,
    lost: LostTransactions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Brokers have let a producer begin to use its transactional id: from now on outages are borne. That they answer is not enough,
    /// since brokers that cannot have a coordinator of transactions do so, too, and would be waited for in vain.
    started: bool,
    /// Producers without a transaction.
    free: Vec<Transactional>,
    /// Those whose transaction waits for its checkpoint, by id.
    prepared: HashMap<String, Transactional>,
    /// Those whose transaction was committed with the newest checkpoint: their ids rest until the next.
    resting: Vec<Transactional>,
    /// Ids of the checkpoint that the job began with; they rest, too.
    restored: Vec<Lease>,
}

impl Transactions {
    /// Those of table `owner`, whose ids begin with `prefix`.
    ///
    /// # Errors
    /// Security settings that recovery does not know.
    pub fn new(connection: &Connection, topic: &str, prefix: &str, queue: ByteSize, lost: LostTransactions) -> Result<Self, ConnectError> {
        Access::of(connection)?;
        let table = connection.owner.split('\'').nth(1).unwrap_or(&connection.owner);
        Ok(Transactions {
            connection: connection.clone(),
            topic: topic.to_string(),
            queue,
            base: format!("{prefix}-{table}-"),
            lost,
            state: Mutex::default(),
        })
    }

    /// A producer with an open transaction. Where there was one before, brokers that do not answer are waited for until `cancelled` is
    /// set, or for a moment more once `stopping` is.
    ///
    /// # Errors
    /// Brokers do not answer, or refuse the transaction; the job is being stopped.
    pub fn begin(&self, cancelled: &AtomicBool, stopping: &AtomicBool) -> Result<Transactional, ConnectError> {
        let (free, started) = {
            let mut state = lock(&self.state);
            (state.free.pop(), state.started)
        };
        self.hear();
        let mut producer = match free {
            Some(producer) => producer,
            None => self.connect(started.then(|| Patience::new(cancelled, stopping)).as_ref())?,
        };
        producer.producer.begins(producer.timeout);
        producer.producer.base().begin_transaction().map_err(|e| producer.wrong("beginning", &e))?;
        producer.open = true;
        Ok(producer)
    }

    /// Hears what has happened to producers that write nothing at the moment: librdkafka keeps their
    /// statistics until somebody takes them. At least once a checkpoint.
    pub fn hear(&self) {
        let state = lock(&self.state);
        for idle in state.free.iter().chain(&state.resting).chain(state.prepared.values()) {
            idle.producer.hear();
        }
    }

    /// A producer under an id that nobody uses; `bears` as in [`Producer::connect`].
    fn connect(&self, bears: Option<&Patience<'_>>) -> Result<Transactional, ConnectError> {
        let id = lease(&self.connection.servers, &self.base);
        let mut config = self.connection.producer(self.queue);
        config.set("transactional.id", id.name());
        config.set("enable.idempotence", "true");
        config.set("statistics.interval.ms", STATISTICS_MS);
        let timeout_ms = self.connection.property("transaction.timeout.ms").and_then(|ms| ms.trim().parse().ok()).unwrap_or(TIMEOUT_MS);
        config.set("transaction.timeout.ms", timeout_ms.to_string());
        let producer = Producer::new(&self.connection, &config, &self.topic)?;
        producer.connect(self.connection.timeout, bears)?;
        let transactional = Transactional { producer, open: false, timeout: Duration::from_millis(timeout_ms), id };
        let deadline = Instant::now() + self.connection.timeout.max(Duration::from_secs(30));
        let goes_on = || bears.map_or_else(|| Instant::now() < deadline, |patience| patience.over().is_none());
        loop {
            // What was begun goes on behind a call that has waited long enough.
            let wait = bears.map_or_else(|| left(deadline), |_| OUTAGE_WAIT);
            match transactional.producer.base().init_transactions(wait) {
                Ok(()) => {
                    transactional.producer.context().alive();
                    lock(&self.state).started = true;
                    return Ok(transactional);
                }
                Err(KafkaError::Transaction(e)) if e.is_retriable() && goes_on() => {
                    transactional.producer.hear();
                    if bears.is_some() {
                        let context = transactional.producer.context();
                        if context.last_error().is_none() {
                            context.outage().note(format!("transaction '{}': {}", transactional.id.name(), e.string()));
                        }
                        context.outage().set_down();
                    }
                }
                Err(e) if transactional.code(&e) == Some(RDKafkaErrorCode::InvalidTransactionTimeout) => {
                    return Err(ConnectError::new(format!(
                        "'properties.transaction.timeout.ms' = {timeout_ms} is more than the brokers at {} allow \
                         ('transaction.max.timeout.ms'): lower the one, but not below the checkpoint interval, or raise the other",
                        self.connection.servers
                    )));
                }
                Err(e) => {
                    let wrong = transactional.wrong("beginning to use", &e);
                    return Err(match e {
                        KafkaError::Transaction(e) if e.is_retriable() => {
                            let why = bears.and_then(|patience| patience.over()).unwrap_or_else(|| {
                                "brokers had no coordinator of transactions that answered: their 'transaction.state.log.replication.factor' \
                                 must not be more than there are brokers"
                                    .into()
                            });
                            ConnectError::new(format!("{wrong}; {why}"))
                        }
                        _ => wrong,
                    });
                }
            }
        }
    }

    /// Makes a transaction safe: brokers have all messages, and only its commit is left to be done.
    ///
    /// # Errors
    /// A message was not delivered; the job is being stopped.
    pub fn prepare(&self, mut transaction: Transactional, cancelled: &AtomicBool) -> Result<Committable, ConnectError> {
        transaction.producer.flush(cancelled)?;
        let producer = &transaction.producer;
        let deadline = Instant::now() + STATISTICS_WAIT;
        let known = loop {
            if let Some(known) = producer.context().producer() {
                break known;
            }
            if Instant::now() >= deadline {
                let waited = STATISTICS_WAIT.as_secs();
                let id = transaction.id.name();
                return Err(ConnectError::new(format!("internal error: librdkafka did not tell the producer of '{id}' within {waited} s")));
            }
            producer.base().poll(Duration::from_millis(20));
        };
        let prepared = Prepared {
            topic: self.topic.clone(),
            id: transaction.id.name().to_string(),
            producer_id: known.id,
            producer_epoch: known.epoch,
        };
        // From here on it must not be aborted: a checkpoint may hold it.
        transaction.open = false;
        lock(&self.state).prepared.insert(prepared.id.clone(), transaction);
        Ok(serde_json::to_value(prepared).expect("plain data"))
    }

    /// Commits what a checkpoint holds that is now safe.
    ///
    /// # Errors
    /// A transaction that cannot be committed now; a restart tries again.
    pub fn commit(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        let (mut waiting, mut elsewhere) = (Vec::new(), Vec::new());
        self.hear();
        {
            let mut state = lock(&self.state);
            // A newer checkpoint is safe: nobody will ask for the transactions of the one before.
            state.restored.clear();
            let rested = std::mem::take(&mut state.resting);
            state.free.extend(rested);
            for prepared in parse(committables)? {
                match state.prepared.remove(&prepared.id) {
                    Some(producer) => waiting.push(producer),
                    None => elsewhere.push(prepared),
                }
            }
        }
        for producer in waiting {
            finish(&producer)?;
            lock(&self.state).resting.push(producer);
        }
        if elsewhere.is_empty() { Ok(()) } else { recover::commit(&self.connection, &elsewhere, self.lost) }
    }

    /// Commits what the checkpoint holds that the job begins with, and aborts whatever else is open.
    ///
    /// # Errors
    /// Brokers do not answer; a transaction of the checkpoint was given up by them.
    pub fn recover(&self, committables: &[Committable]) -> Result<(), ConnectError> {
        let prepared = parse(committables)?;
        // Of an earlier attempt within this process: what counts is what the checkpoint says, and that brokers could do it before.
        {
            let mut state = lock(&self.state);
            let started = state.started;
            *state = State { started, ..State::default() };
        }
        recover::commit(&self.connection, &prepared, self.lost)?;
        let held: Vec<&str> = prepared.iter().map(|p| p.id.as_str()).collect();
        let leases: Vec<Lease> = held.iter().filter_map(|id| Lease::hold(&self.connection.servers, &self.base, id)).collect();
        lock(&self.state).restored.extend(leases);
        recover::abort(&self.connection, &self.base, &held)
    }
}

/// Commits through the producer that wrote.
fn finish(transaction: &Transactional) -> Result<(), ConnectError> {
    let deadline = Instant::now() + COMMIT_TIMEOUT;
    loop {
        match transaction.producer.base().commit_transaction(left(deadline)) {
            Ok(()) => return Ok(()),
            Err(KafkaError::Transaction(e)) if e.is_retriable() && Instant::now() < deadline => {}
            Err(e) => {
                let hint = "; the next start tries it again";
                return Err(ConnectError::new(format!("{}{hint}", transaction.wrong("committing", &e))));
            }
        }
    }
}

/// What a checkpoint kept.
///
/// # Errors
/// It is something else.
pub fn parse(committables: &[Committable]) -> Result<Vec<Prepared>, ConnectError> {
    let read = |c: &Committable| {
        serde_json::from_value(c.clone()).map_err(|e| ConnectError::new(format!("the checkpoint's {c} is no transaction of Kafka: {e}")))
    };
    committables.iter().map(read).collect()
}

/// Commits transactions of a checkpoint of a table that no longer writes in transactions.
///
/// # Errors
/// As [`Transactions::recover`].
pub fn commit_left_over(connection: &Connection, committables: &[Committable], lost: LostTransactions) -> Result<(), ConnectError> {
    match parse(committables)?.as_slice() {
        [] => Ok(()),
        prepared => recover::commit(connection, prepared, lost),
    }
}
