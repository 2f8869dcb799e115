//! Moments by a clock that goes on while the machine is suspended: who holds a lock that runs out must not believe, on waking
//! up, that no time has passed. `Instant` stands still meanwhile.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::timeout;

/// A moment of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Since the boot, suspended time included; `None` where the system does not say.
    uptime: Option<Duration>,
    running: Instant,
    /// May be set while the process runs, so it is asked only where there is nothing better.
    wall: SystemTime,
}

/// The first field of `/proc/uptime`: seconds since the boot by `CLOCK_BOOTTIME`.
fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(text.split_ascii_whitespace().next()?.parse().ok()?).ok()
}

impl Moment {
    /// This one.
    pub fn now() -> Self {
        Moment { uptime: uptime(), running: Instant::now(), wall: SystemTime::now() }
    }

    /// How long ago it was.
    pub fn elapsed(&self) -> Duration {
        let awake = self.running.elapsed();
        let all = match (self.uptime, uptime()) {
            (Some(from), Some(to)) => to.saturating_sub(from),
            // Set back, it says nothing.
            _ => self.wall.elapsed().unwrap_or_default(),
        };
        awake.max(all)
    }

    /// Does `work` for as long as less than `limit` has gone by since this moment, sleep included, which the runtime's timers do not
    /// count: so it is looked at each time before the work goes on. `None` when time is up.
    pub async fn within<T>(self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let watched = poll_fn(|context| match self.elapsed() < limit {
            true => work.as_mut().poll(context).map(Some),
            false => Poll::Ready(None),
        });
        timeout(limit.saturating_sub(self.elapsed()), watched).await.ok().flatten()
    }

    /// The moment just before the machine was suspended for so long, of which `Instant` knows nothing.
    #[cfg(test)]
    pub fn asleep_for(asleep: Duration) -> Self {
        let now = Moment::now();
        // A machine that was booted a moment ago cannot have slept for long: as where there is no uptime.
        Moment { uptime: now.uptime.and_then(|uptime| uptime.checked_sub(asleep)), wall: now.wall - asleep, ..now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::wait;

    /// A machine that was suspended between the renewal of a lock and the removal of a commit went on to remove what by then was
    /// another's: the runtime's timer had counted no time.
    #[test]
    fn nothing_is_begun_after_a_sleep() {
        let limit = Duration::from_secs(30);
        let done = |since: Moment| {
            wait(async move {
                let mut done = false;
                let ended = since.within(limit, async { done = true }).await;
                Ok((ended.is_some(), done))
            })
            .unwrap()
        };
        assert_eq!(done(Moment::now()), (true, true));
        assert_eq!(done(Moment::asleep_for(limit)), (false, false));
    }

    #[test]
    fn time_passes_while_the_machine_sleeps() {
        let asleep = Duration::from_secs(70);
        assert!(Moment::asleep_for(asleep).elapsed() >= asleep);
        assert!(Moment { uptime: None, ..Moment::asleep_for(asleep) }.elapsed() >= asleep);
        let set_back = Moment { uptime: None, wall: SystemTime::now() + Duration::from_secs(3600), ..Moment::now() };
        assert!(set_back.elapsed() < Duration::from_secs(3600));
    }
}
