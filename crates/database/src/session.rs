//! A connection that is made again when it breaks, and work that is tried again with growing pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::driver::{Connection, DbError, DbErrorKind, Driver};

/// The first pause before another attempt.
const DELAY_MIN: Duration = Duration::from_millis(20);
/// The longest pause.
const DELAY_MAX: Duration = Duration::from_secs(5);
/// How long a job that was asked to stop goes on trying, from the first failure on.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often who pauses looks whether the job is being stopped.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// How a database is reached, and how patiently.
#[derive(Clone)]
pub struct Access {
    /// Opens connections.
    pub driver: Arc<dyn Driver>,
    /// The database, for messages: `PostgreSQL at postgresql://db/events`.
    pub place: String,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long a database that cannot be reached is tried again.
    pub retry_timeout: Duration,
    /// How often a transaction is tried again that the database has given up.
    pub max_retries: u32,
}

/// A session with a database that outlives its connections. Used by one thread at a time.
pub struct Session {
    access: Access,
    connection: Option<Box<dyn Connection>>,
    /// Set when waiting is to end.
    cancelled: Arc<AtomicBool>,
    /// Set when the job was asked to stop: patience is short from then on.
    stopping: Arc<AtomicBool>,
}

impl Session {
    /// A session; connects when it is first used.
    pub fn new(access: Access, cancelled: Arc<AtomicBool>) -> Self {
        Session { access, connection: None, cancelled, stopping: Arc::default() }
    }

    /// The same, which tries nothing again for long once `stopping` is set.
    #[must_use]
    pub fn until(mut self, stopping: Arc<AtomicBool>) -> Self {
        self.stopping = stopping;
        self
    }

    /// How the database is reached.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Whether waiting is to end, and with it what has not begun.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The connection, made now if there is none. One attempt.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn connection(&mut self) -> Result<&mut dyn Connection, DbError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.access.driver.connect(self.access.connect_timeout).map_err(|e| self.named(e))?,
        };
        Ok(self.connection.insert(connection).as_mut())
    }

    /// Gives the connection up, and with it what was not committed.
    pub fn forget(&mut self) {
        self.connection = None;
    }

    /// Rolls back what is open; a connection that cannot do so is given up.
    pub fn roll_back(&mut self) {
        if self.connection.as_mut().is_some_and(|c| c.rollback().is_err()) {
            self.forget();
        }
    }

    /// Names the database in an error.
    pub fn named(&self, error: DbError) -> DbError {
        if error.message.contains(&self.access.place) { error } else { error.at(&self.access.place) }
    }

    /// Does `work` in one attempt: what it left open after an error is rolled back.
    ///
    /// # Errors
    /// Of the connection and of `work`.
    pub fn once<T>(&mut self, work: impl FnOnce(&mut dyn Connection) -> Result<T, DbError>) -> Result<T, DbError> {
        let result = self.connection().and_then(work);
        match &result {
            Err(e) if e.kind == DbErrorKind::Connection => self.forget(),
            Err(_) => self.roll_back(),
            Ok(_) => {}
        }
        result.map_err(|e| self.named(e))
    }

    /// Does `work`, again and again while that may help.
    ///
    /// # Errors
    /// The last one, when patience is at its end or nothing would help.
    pub fn patiently<T>(&mut self, mut work: impl FnMut(&mut dyn Connection) -> Result<T, DbError>) -> Result<T, DbError> {
        let mut patience = Patience { stopping: self.stopping.clone(), ..Patience::new(&self.access) };
        loop {
            match self.once(&mut work) {
                Ok(done) => return Ok(done),
                Err(error) => patience.wait(error, &self.cancelled)?,
            }
        }
    }

    /// Does `work` in a transaction and commits it, again and again while that may help. After a connection
    /// that broke in the commit nobody knows whether it happened: `work` is then done again.
    ///
    /// # Errors
    /// As [`Session::patiently`]; waiting is to end.
    pub fn transaction<T>(&mut self, mut work: impl FnMut(&mut dyn Connection) -> Result<T, DbError>) -> Result<T, DbError> {
        let cancelled = self.cancelled.clone();
        self.patiently(|connection| {
            connection.begin()?;
            let done = work(connection)?;
            // A statement that waited for a lock may have outlasted its job, whose next run writes these rows, and newer ones.
            if cancelled.load(Ordering::Relaxed) {
                return Err(DbError::fatal("the job is being stopped"));
            }
            connection.commit()?;
            Ok(done)
        })
    }
}

/// How long it goes on after failures.
pub struct Patience {
    /// When the first failure was.
    since: Option<Instant>,
    /// Further attempts after the database gave a transaction up.
    retries: u32,
    delay: Duration,
    timeout: Duration,
    max_retries: u32,
    /// It was said that the database is away.
    told: bool,
    /// Set when the job was asked to stop.
    stopping: Arc<AtomicBool>,
}

impl Patience {
    /// Of a table's options.
    pub fn new(access: &Access) -> Self {
        Patience {
            since: None,
            retries: 0,
            delay: DELAY_MIN,
            timeout: access.retry_timeout,
            max_retries: access.max_retries,
            told: false,
            stopping: Arc::default(),
        }
    }

    /// Whether the job was asked to stop, and this has lasted long enough for that.
    fn is_over(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) && self.since.is_some_and(|since| since.elapsed() >= STOP_PATIENCE)
    }

    /// Waits before another attempt.
    ///
    /// # Errors
    /// The error itself if another attempt would not help, or there were enough.
    pub fn wait(&mut self, error: DbError, cancelled: &AtomicBool) -> Result<(), DbError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        match error.kind {
            DbErrorKind::Data | DbErrorKind::Fatal => return Err(error),
            _ if self.is_over() => {
                let why = format!("{} (tried again for {:.0?}; the job is being stopped)", error.message, since.elapsed());
                return Err(DbError { message: why, ..error });
            }
            DbErrorKind::Connection if since.elapsed() + self.delay > self.timeout => {
                let why = format!("{} (tried again for {:.0?}: 'connection.max-retry-timeout')", error.message, since.elapsed());
                return Err(DbError { message: why, ..error });
            }
            DbErrorKind::Retry if self.retries >= self.max_retries => {
                let why = format!("{} (after {} further attempts: 'sink.max-retries')", error.message, self.retries);
                return Err(DbError { message: why, ..error });
            }
            DbErrorKind::Connection | DbErrorKind::Retry => {}
        }
        match error.kind {
            DbErrorKind::Retry => self.retries += 1,
            _ if !self.told => {
                self.told = true;
                tidemill_connect::notice(&format!("{}; trying again", error.message));
            }
            _ => {}
        }
        pause(self.jittered(), cancelled);
        self.delay = (self.delay * 2).min(DELAY_MAX);
        if cancelled.load(Ordering::Relaxed) { Err(error) } else { Ok(()) }
    }

    /// Between half of the delay and all of it, so that writers that got in each other's way do not again.
    fn jittered(&self) -> Duration {
        let chance = Instant::now().duration_since(self.since.unwrap_or_else(Instant::now)).subsec_nanos() ^ std::process::id();
        self.delay / 2 + self.delay.mul_f64(f64::from(chance % 1000) / 2000.0)
    }
}

/// Waits, or less if `cancelled`.
pub fn pause(time: Duration, cancelled: &AtomicBool) {
    let end = Instant::now() + time;
    while !cancelled.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(CANCEL_CHECK));
    }
}

#[cfg(test)]
mod tests;
