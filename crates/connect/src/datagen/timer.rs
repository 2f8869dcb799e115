//! One thread for the process that wakes readers at a given time. It sleeps while nobody waits.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crate::Waker;

struct Entry {
    deadline: Instant,
    waker: Waker,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.deadline == other.deadline
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.deadline.cmp(&other.deadline)
    }
}

#[derive(Default)]
struct Timer {
    waiting: Mutex<BinaryHeap<Reverse<Entry>>>,
    changed: Condvar,
}

static TIMER: OnceLock<Timer> = OnceLock::new();

/// Wakes `waker` at `deadline` or shortly after. Each call wakes once.
pub fn wake_at(deadline: Instant, waker: Waker) {
    let mut first = false;
    let timer = TIMER.get_or_init(|| {
        first = true;
        Timer::default()
    });
    if first {
        let thread = std::thread::Builder::new().name("tidemill-timer".into()).stack_size(128 << 10);
        thread.spawn(|| TIMER.get().expect("just made").run()).expect("the process can start its timer thread");
    }
    let mut waiting = timer.lock();
    let sooner = waiting.peek().is_none_or(|next| deadline < next.0.deadline);
    waiting.push(Reverse(Entry { deadline, waker }));
    drop(waiting);
    if sooner {
        timer.changed.notify_one();
    }
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Entry>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut due = Vec::new();
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            while waiting.peek().is_some_and(|next| next.0.deadline <= now) {
                due.extend(waiting.pop().map(|entry| entry.0.waker));
            }
            if !due.is_empty() {
                // Not under the lock: whoever is woken may poll, and arm the timer again, at once.
                drop(waiting);
                due.drain(..).for_each(|waker| waker.wake());
                waiting = self.lock();
                continue;
            }
            waiting = match waiting.peek().map(|next| next.0.deadline - now) {
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(pause) => self.changed.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn wakes_in_order_of_time() {
        let (sender, receiver) = mpsc::channel();
        let now = Instant::now();
        for ms in [60u64, 20, 40] {
            let sender = sender.clone();
            let waker = Waker::new(move || {
                let _ = sender.send(ms);
            });
            wake_at(now + Duration::from_millis(ms), waker);
        }
        let woken: Vec<_> = (0..3).map(|_| receiver.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(woken, [20, 40, 60]);
        assert!(now.elapsed() >= Duration::from_millis(60), "nobody is woken early");
    }
}
