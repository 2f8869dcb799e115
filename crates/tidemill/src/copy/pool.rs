//! The tasks of a copy, side by side: as many as are asked for, or as many as pay. How many pay is found by
//! [`tidemill_runtime::parallel`]; here they are begun, and end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidemill_runtime::parallel::{Bounds, Found, Meter, Search};

/// How long a number of workers is looked at: to begin with a file (a query is planned, a footer read) takes a part of it.
const WINDOW: Duration = Duration::from_secs(1);
/// Time between two samples.
const SAMPLE: Duration = Duration::from_millis(250);
/// How often is looked whether tasks have ended.
const LOOK: Duration = Duration::from_millis(20);

/// How many files are read at once.
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

/// What the number of workers depends on.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub parallel: Parallel,
    /// The limit of the process's memory, bytes.
    pub memory: Option<u64>,
    /// The files of all tasks together.
    pub files: usize,
}

impl Pool {
    fn search(&self) -> Search {
        let files = self.files.max(1);
        match self.parallel {
            Parallel::Fixed(n) => Search::fixed(n.min(files)),
            Parallel::Auto { most } => {
                let most = most.clamp(1, files);
                let first = std::thread::available_parallelism().map_or(1, usize::from).min(most);
                Search::new(Bounds { first, least: 1, most }, WINDOW)
            }
        }
    }
}

/// So many workers in terms of tasks: how many at once, and how many files each may read at once.
struct Shares {
    tasks: Vec<Share>,
    /// Tasks that are not done.
    left: AtomicUsize,
    workers: AtomicUsize,
    at_once: AtomicUsize,
    /// There are more workers than tasks left.
    spare: AtomicBool,
}

/// What is a task's.
struct Share {
    files: usize,
    done: AtomicBool,
    each: AtomicUsize,
}

impl Shares {
    /// For tasks of so many files each.
    fn new(files: impl Iterator<Item = usize>, workers: usize) -> Self {
        let share = |files| Share { files, done: AtomicBool::new(false), each: AtomicUsize::new(1) };
        let tasks: Vec<Share> = files.map(share).collect();
        let (left, one) = (AtomicUsize::new(tasks.len()), || AtomicUsize::new(1));
        let shares = Shares { tasks, left, workers: one(), at_once: one(), spare: AtomicBool::new(false) };
        shares.set(workers);
        shares
    }

    fn set(&self, workers: usize) {
        self.workers.store(workers, Ordering::Release);
        self.at_once.store(workers.clamp(1, self.tasks.len().max(1)), Ordering::Release);
        // Of very many tasks nothing is looked at before their last ones.
        let spare = workers > self.left.load(Ordering::Acquire);
        if !self.spare.swap(spare, Ordering::AcqRel) && !spare {
            return;
        }
        let open: Vec<&Share> = self.tasks.iter().filter(|task| !task.done.load(Ordering::Acquire)).collect();
        let files: Vec<usize> = open.iter().map(|task| task.files).collect();
        open.iter().zip(spread(workers, &files)).for_each(|(task, each)| task.each.store(each, Ordering::Release));
    }

    /// A task is done: what it had goes to those that are left.
    fn end(&self, task: usize) {
        self.tasks[task].done.store(true, Ordering::Release);
        self.left.fetch_sub(1, Ordering::AcqRel);
        self.set(self.workers.load(Ordering::Acquire));
    }

    /// How many workers so many tasks are, if all of `workers` were wanted.
    fn active(&self, at_work: usize, workers: usize) -> usize {
        let left = self.left.load(Ordering::Acquire).max(1);
        if at_work == workers.min(left) { workers } else { at_work * (workers / left).max(1) }
    }
}

/// Workers for tasks of so many files: one for each task, and those that are left over one after the other, as long as there are
/// files for them.
fn spread(workers: usize, files: &[usize]) -> Vec<usize> {
    let mut each = vec![1; files.len()];
    let mut spare = workers.saturating_sub(files.len());
    while spare > 0 {
        let before = spare;
        for (each, files) in each.iter_mut().zip(files) {
            if spare > 0 && *each < *files {
                *each += 1;
                spare -= 1;
            }
        }
        if spare == before {
            break;
        }
    }
    each
}

/// Counts a thread out if there are more than wanted. It is counted out by the very look: of several that look at the same
/// time no more leave than are too many, and never all, which would leave tasks undone.
fn withdraw(active: &AtomicUsize, wanted: usize) -> bool {
    active.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n > wanted).then(|| n - 1)).is_ok()
}

/// Counts a thread out that was not counted out before, also one that panics.
struct Leave<'a>(Option<&'a AtomicUsize>);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if let Some(active) = self.0 {
            active.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Does all tasks, each of so many `files`; `run` does one, and is told how many of its files it may read at once, which may change;
/// `position` says how many bytes were read in all. After the first error no further task is begun.
///
/// # Errors
/// The first that a task gave.
pub fn run_all<T: Send, E: Send>(
    tasks: Vec<T>,
    pool: Pool,
    files: impl Fn(&T) -> usize,
    position: impl Fn() -> u64,
    run: impl Fn(T, &AtomicUsize) -> Result<(), E> + Sync,
    failed: impl Fn() + Sync,
) -> Result<Found, E> {
    let mut search = pool.search();
    let shares = Shares::new(tasks.iter().map(files), search.workers());
    let queue: Mutex<VecDeque<(usize, T)>> = Mutex::new(tasks.into_iter().enumerate().collect());
    let error: Mutex<Option<E>> = Mutex::new(None);
    let active = AtomicUsize::new(0);
    let broken = || error.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let waiting = || !queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    let work = || {
        let mut leave = Leave(Some(&active));
        while !broken() {
            // One more than wanted: this one ends instead of taking a task.
            if withdraw(&active, shares.at_once.load(Ordering::Acquire)) {
                leave.0 = None;
                return;
            }
            let Some((number, task)) = take() else { return };
            let done = run(task, &shares.tasks[number].each);
            shares.end(number);
            if let Err(e) = done {
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
        let mut meter = Meter::new(pool.memory, position());
        let mut before = shares.at_once.load(Ordering::Acquire);
        (0..shares.at_once.load(Ordering::Acquire)).for_each(|_| spawn());
        loop {
            let at_work = active.load(Ordering::Acquire);
            // The last sample is of what was done since the one before, also of a copy that takes no longer than one.
            if at_work == 0 || meter.age() >= SAMPLE {
                let seen = if at_work == 0 { before } else { at_work };
                search.observe(&meter.sample(position(), shares.active(seen, search.workers()), seen));
                shares.set(search.workers());
            }
            before = at_work;
            if at_work == 0 {
                break;
            }
            // Withdrawn threads come back when more are wanted and something is left to do.
            if at_work < shares.at_once.load(Ordering::Acquire) && !broken() && waiting() {
                spawn();
            }
            std::thread::sleep(LOOK);
        }
    });
    match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(search.found()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(parallel: Parallel) -> Pool {
        Pool { parallel, memory: None, files: 100 }
    }

    /// Of 5 workers for 3 tasks 3 read: shares were rounded down.
    #[test]
    fn workers_are_tasks_and_files_of_tasks() {
        #[track_caller]
        fn check(files: &[usize], workers: usize, at_once: usize, each: &[usize]) {
            let shares = Shares::new(files.iter().copied(), workers);
            assert_eq!(shares.at_once.load(Ordering::Relaxed), at_once);
            assert_eq!(shares.tasks.iter().map(|task| task.each.load(Ordering::Relaxed)).collect::<Vec<_>>(), each);
        }
        check(&[9; 10], 4, 4, &[1; 10]);
        check(&[9], 8, 1, &[8]);
        check(&[9, 9, 9], 5, 3, &[2, 2, 1]);
        check(&[9, 9, 9], 8, 3, &[3, 3, 2]);
        check(&[1, 9, 2], 8, 3, &[1, 5, 2]);
        check(&[1, 1], 8, 2, &[1, 1]);
        check(&[], 2, 1, &[]);
        let shares = Shares::new([9, 9, 9].into_iter(), 8);
        assert_eq!([shares.active(3, 8), shares.active(1, 8), shares.active(5, 4)], [8, 2, 5]);
        shares.end(1);
        assert_eq!([0, 2].map(|task: usize| shares.tasks[task].each.load(Ordering::Relaxed)), [4, 4]);
        assert_eq!(shares.active(2, 8), 8);
    }

    /// Once two that looked at the same time both left, nobody was there for the tasks that were left, and the copy counted as
    /// done without them.
    #[test]
    fn as_many_stay_as_are_wanted() {
        for round in 0..200 {
            let (threads, wanted) = (2 + round % 4, 1 + round % 2);
            let (active, begin) = (AtomicUsize::new(threads), std::sync::Barrier::new(threads));
            let left: usize = std::thread::scope(|scope| {
                let look = || {
                    begin.wait();
                    usize::from(withdraw(&active, wanted))
                };
                let looking: Vec<_> = (0..threads).map(|_| scope.spawn(look)).collect();
                looking.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!((left, active.into_inner()), (threads - wanted, wanted));
        }
    }

    #[test]
    fn all_tasks_are_done_once_and_the_first_error_ends_it() {
        for parallel in [Parallel::Fixed(1), Parallel::Fixed(3), Parallel::Auto { most: 8 }] {
            let sum = AtomicUsize::new(0);
            let add = |n: usize, _: &AtomicUsize| {
                sum.fetch_add(n, Ordering::Relaxed);
                Ok::<(), String>(())
            };
            let found = run_all((1..=100).collect(), pool(parallel), |_| 1, || 0, add, || {}).unwrap();
            assert_eq!(sum.load(Ordering::Relaxed), 5050);
            assert_eq!(found.found, parallel == Parallel::Auto { most: 8 });
            let fail = |n: usize, _: &AtomicUsize| if n == 3 { Err(n) } else { Ok(()) };
            assert_eq!(run_all((1..=100).collect(), pool(parallel), |_| 1, || 0, fail, || {}), Err(3));
        }
        assert!(run_all(Vec::<u8>::new(), pool(Parallel::Fixed(2)), |_| 1, || 0, |_, _: &AtomicUsize| Err("never"), || {}).is_ok());
    }
}
