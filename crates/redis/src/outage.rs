//! A server that is away: attempts with growing pauses, told once when it goes and once when it is back.

use std::time::{Duration, Instant};

use tidemill_connect::ConnectError;

use crate::address::Address;
use crate::connection::{Connection, Trouble, named};

/// The pause after the first failure; each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: how late it may be found that a server is back.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How often who pauses looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// What one client knows of an outage.
pub struct Outage {
    /// The server and what is done there, for notices.
    name: String,
    since: Option<Instant>,
    attempts: u64,
    pause: Duration,
}

impl Outage {
    /// Of what is called `name` in notices.
    pub fn new(name: String) -> Self {
        Outage { name, since: None, attempts: 0, pause: PAUSE_MIN }
    }

    /// An attempt has failed. Waits before the next one, no longer than until `stop` says so.
    pub fn failed(&mut self, why: &str, stop: impl Fn() -> bool) {
        if self.since.is_none() {
            self.since = Some(Instant::now());
            tidemill_connect::notice(&format!("{}: {why}; trying on", self.name));
        }
        self.attempts += 1;
        pause(self.pause, stop);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// How long it has lasted.
    pub fn lasts(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Something came from the server: an outage, if there was one, is over.
    pub fn over(&mut self) {
        if let Some(since) = self.since.take() {
            tidemill_connect::notice(&format!(
                "{} answers again, after {} s and {} attempts",
                self.name,
                since.elapsed().as_secs(),
                self.attempts
            ));
            self.attempts = 0;
            self.pause = PAUSE_MIN;
        }
    }
}

/// Waits, no longer than until `stop` says so.
fn pause(time: Duration, stop: impl Fn() -> bool) {
    let until = Instant::now() + time;
    while !stop() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// Does `work` over a connection, which is made anew while the server is away, for as long as a start may take.
///
/// # Errors
/// Names the server and what went wrong.
pub fn patiently<T>(address: &Address, mut work: impl FnMut(&mut Connection) -> Result<T, Trouble>) -> Result<T, ConnectError> {
    let deadline = Instant::now() + address.timeout;
    let mut wait = PAUSE_MIN;
    loop {
        match Connection::open(address).and_then(|mut connection| work(&mut connection)) {
            Ok(done) => return Ok(done),
            Err(Trouble::Away(_)) if Instant::now() < deadline => {
                pause(wait, || Instant::now() >= deadline);
                wait = (wait * 2).min(PAUSE_MAX);
            }
            Err(trouble @ Trouble::Refused(_)) => return Err(named(address, &trouble)),
            Err(trouble) => return Err(given_up(address, &trouble)),
        }
    }
}

/// What is said of a server that does not answer at the start.
pub fn given_up(address: &Address, trouble: &Trouble) -> ConnectError {
    let waited = address.timeout.as_millis();
    let hint = "check that a server runs there, or raise 'connect.timeout'";
    ConnectError::new(format!("{}: {}, for {waited} ms; {hint}", address.name(), trouble.why()))
}
