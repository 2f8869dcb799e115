//! The monotonic clock that arrival times are stamped with.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since the process first asked; monotonic.
#[inline]
pub fn now_ns() -> u64 {
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Milliseconds since 1970-01-01 00:00 UTC by the wall clock: processing time.
pub fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

thread_local! {
    static HELD_UP: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The calling thread was held up for so long, and did not look whether what others owe it had come.
pub fn was_held_up(time: Duration) {
    HELD_UP.set(HELD_UP.get() + time);
}

/// For how long the calling thread was held up in all, as far as anybody has told.
pub fn held_up() -> Duration {
    HELD_UP.get()
}

/// [`now_ns`] without the time in which the calling thread was held up: for limits of what others owe it.
pub fn patient_ns() -> u64 {
    now_ns().saturating_sub(held_up().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patient_clock_stands_still_while_its_thread_is_held_up() {
        let before = patient_ns();
        was_held_up(Duration::from_secs(3600));
        assert!(patient_ns() < before && held_up() == Duration::from_secs(3600));
        std::thread::spawn(|| assert!(held_up().is_zero(), "another thread")).join().unwrap();
    }
}
