//! How many tasks of a copy run at once: as many as are asked for, or as pay.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a number of tasks at once is tried.
const TRIAL: Duration = Duration::from_secs(3);
/// By how much a further task at once must raise what is read a second.
const GAIN: f64 = 1.05;
/// Trials that a number that was found good is kept before a further one is tried again.
const REST: u32 = 20;

/// How many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// So many.
    Fixed(usize),
    /// One for each processor at first; more as long as that reads more a second, up to so many.
    Auto {
        /// The most.
        most: usize,
    },
}

/// Finds how many at once pay: one more as long as it gives more, one less if it does not.
#[derive(Debug, Default)]
struct Search {
    /// Bytes a second before the latest change.
    before: Option<f64>,
    rest: u32,
}

impl Search {
    /// What to change after a trial with this rate: +1, -1 or nothing.
    fn next(&mut self, rate: f64) -> i32 {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        match self.before.replace(rate) {
            // The last step up did not pay.
            Some(before) if rate < before * GAIN => {
                (self.before, self.rest) = (None, REST);
                -1
            }
            _ => 1,
        }
    }
}

/// Counts a thread out, also one that panics.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Does all tasks; `run` does one, `position` says how many bytes were read in all. After the first error no
/// further task is begun.
///
/// # Errors
/// The first that a task gave.
pub fn run_all<T: Send, E: Send>(
    tasks: Vec<T>,
    parallel: Parallel,
    position: impl Fn() -> u64,
    run: impl Fn(T) -> Result<(), E> + Sync,
    failed: impl Fn() + Sync,
) -> Result<(), E> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (first, most) = match parallel {
        Parallel::Fixed(n) => (n, n),
        Parallel::Auto { most } => (processors.min(most), most),
    };
    let (first, most) = (first.clamp(1, tasks.len().max(1)), most.clamp(1, tasks.len().max(1)));
    let queue = Mutex::new(VecDeque::from(tasks));
    let error: Mutex<Option<E>> = Mutex::new(None);
    let (wanted, active) = (AtomicUsize::new(first), AtomicUsize::new(0));
    let take = || {
        // One more than wanted: this one ends instead of taking a task.
        if error.lock().unwrap_or_else(PoisonError::into_inner).is_some() || active.load(Ordering::Acquire) > wanted.load(Ordering::Acquire)
        {
            return None;
        }
        queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    };
    let waiting = || !queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    let work = || {
        let _leave = Leave(&active);
        while let Some(task) = take() {
            if let Err(e) = run(task) {
                error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                failed();
            }
        }
    };
    std::thread::scope(|scope| {
        let spawn = || {
            active.fetch_add(1, Ordering::AcqRel);
            scope.spawn(work);
        };
        (0..first).for_each(|_| spawn());
        let mut search = Search::default();
        let (mut since, mut at) = (Instant::now(), position());
        while active.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_millis(20));
            let broken = error.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            // Withdrawn threads come back when all others have left and something is left to do.
            if !broken && active.load(Ordering::Acquire) < wanted.load(Ordering::Acquire) && waiting() {
                spawn();
            }
            if most > first && since.elapsed() >= TRIAL {
                let now = position();
                let change = search.next(now.saturating_sub(at) as f64 / since.elapsed().as_secs_f64());
                let next = wanted.load(Ordering::Acquire).saturating_add_signed(change as isize).clamp(1, most);
                wanted.store(next, Ordering::Release);
                (since, at) = (Instant::now(), now);
            }
        }
    });
    match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_threads_are_tried_as_long_as_they_pay() {
        let mut search = Search::default();
        assert_eq!([100.0, 150.0, 152.0].map(|rate| search.next(rate)), [1, 1, -1]);
        assert!((0..REST).all(|_| search.next(500.0) == 0));
        assert_eq!(search.next(150.0), 1);
    }

    #[test]
    fn all_tasks_are_done_once_and_the_first_error_ends_it() {
        for parallel in [Parallel::Fixed(1), Parallel::Fixed(3), Parallel::Auto { most: 8 }] {
            let sum = AtomicUsize::new(0);
            let add = |n: usize| {
                sum.fetch_add(n, Ordering::Relaxed);
                Ok::<(), String>(())
            };
            run_all((1..=100).collect(), parallel, || 0, add, || {}).unwrap();
            assert_eq!(sum.load(Ordering::Relaxed), 5050);
            let fail = |n: usize| if n == 3 { Err(n) } else { Ok(()) };
            assert_eq!(run_all((1..=100).collect(), parallel, || 0, fail, || {}), Err(3));
        }
        assert_eq!(run_all(Vec::<u8>::new(), Parallel::Fixed(2), || 0, |_| Err("never"), || {}), Ok(()));
    }
}
