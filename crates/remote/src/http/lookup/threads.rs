//! The threads on which requests are made. What belongs to one lookup stays on one thread and needs no locks.
//!
//! - The worker's own, if it drives ([`tidemill_connect::drive`]): an answer then wakes one thread and not two, which is most of what
//!   a request costs.
//! - Else, and for encrypted requests, which are more work: few of their own, each with a runtime. They are started with the
//!   first lookup that needs them and live as long as the process.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tidemill_connect::ConnectError;
use tidemill_connect::drive::{self, Drive};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::coop::unconstrained;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::error::Elapsed;
use tokio::time::{Sleep, sleep, timeout};

/// The most threads unless it is said otherwise: a thread carries some 50,000 requests a second.
const THREADS_DEFAULT_MAX: usize = 2;
/// Threads of a runtime that ask for addresses of names, which blocks.
const RESOLVERS_MAX: usize = 2;
/// Lookups that wait to be started on a thread.
const STARTS_MAX: usize = 64;

/// How many threads there shall be; 0 leaves it to the machine.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static THREADS: OnceLock<Result<Vec<Sender<Start>>, String>> = OnceLock::new();

type Start = Box<dyn FnOnce() + Send>;

/// Says how many threads make those requests of lookups in this process that workers do not make themselves. Of use before the
/// first lookup only.
pub fn io_threads(threads: usize) {
    WANTED.store(threads, Ordering::Relaxed);
}

fn start_threads() -> Result<Vec<Sender<Start>>, String> {
    let count = match WANTED.load(Ordering::Relaxed) {
        0 => tidemill_connect::io::threads()
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_DEFAULT_MAX))),
        wanted => wanted,
    };
    let start = |number: usize| {
        let failed = |e: std::io::Error| format!("starting the threads of lookups: {e}");
        let (sender, mut starts) = channel::<Start>(STARTS_MAX);
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVERS_MAX).build().map_err(failed)?;
        let run = move || {
            LocalSet::new().block_on(&runtime, async move {
                while let Some(start) = starts.recv().await {
                    start();
                }
            });
        };
        thread::Builder::new().name(format!("tidemill-io-{number}")).spawn(run).map_err(failed)?;
        Ok(sender)
    };
    (0..count).map(start).collect()
}

/// What a lookup tells whoever drives it.
pub(super) struct Wants {
    /// For how long nobody need look for answers, so that they gather; [`Duration::MAX`] while none is to come.
    pub away: Cell<Duration>,
    /// Requests that are being made.
    pub under_way: Cell<usize>,
}

/// How often a worker that has other work looks for answers at most.
const GLANCE: Duration = Duration::from_micros(100);
/// How long it sleeps if it cannot be woken by a socket of its own.
const BLIND: Duration = Duration::from_millis(1);
/// A worker that has not looked for longer was held up, by a sink that waits say. A limit that ran off meanwhile is put off once
/// by as much: what was to come may lie there, and takes more than a look.
const HELD_UP: Duration = Duration::from_millis(100);
/// Sockets of which the kernel tells at once.
const SOCKETS_AT_ONCE: usize = 1024;

/// Says that tasks have something to do.
#[derive(Default)]
struct Stirred(AtomicBool);

impl Wake for Stirred {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// The requests of a worker that makes them itself. Each of its tasks runs only when the worker says so, so that a request and its
/// answer cost the kernel three calls: to wait, to read and to write. A task must not yield to the runtime, which wakes it only if it
/// is run again at once, so none has a budget to run out of.
struct Local {
    tasks: RefCell<LocalSet>,
    /// What tasks tell while the worker does not sleep, which costs nothing.
    stirred: Arc<Stirred>,
    stir: Waker,
    /// Ends the sleep of the worker. One for all of them: to put off a timer costs nothing, a new one a call to the kernel.
    alarm: RefCell<Option<Pin<Box<Sleep>>>>,
    /// Until the drop.
    runtime: Option<Runtime>,
    /// When it was last looked for answers.
    looked: Cell<Instant>,
    lookups: RefCell<Vec<Rc<Wants>>>,
}

thread_local! {
    static LOCAL: RefCell<Weak<Local>> = const { RefCell::new(Weak::new()) };
    /// How often this thread was held up.
    static HOLD_UPS: Cell<u64> = const { Cell::new(0) };
}

/// A descriptor of our own for a socket of somebody else, who may close it meanwhile.
fn own(socket: RawFd) -> Option<OwnedFd> {
    // SAFETY: the call looks whether there is such a descriptor, and what it gives is nobody else's.
    unsafe {
        let copy = libc::fcntl(socket, libc::F_DUPFD_CLOEXEC, 0);
        (copy >= 0).then(|| OwnedFd::from_raw_fd(copy))
    }
}

/// Something to wait for; none if it cannot be waited for.
fn watch(socket: &RawFd) -> Option<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor stays open as long as its owner, which this becomes.
    unsafe { AsyncFd::register_with_interest(own(*socket)?, Interest::READABLE) }.ok()
}

impl Local {
    /// That of the calling thread, if it drives.
    fn here() -> Result<Option<Rc<Local>>, ConnectError> {
        if !drive::is_here() {
            return Ok(None);
        }
        if let Some(local) = LOCAL.with_borrow(Weak::upgrade) {
            return Ok(Some(local));
        }
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVERS_MAX).build();
        let runtime = runtime.map_err(|e| ConnectError::io("making ready for lookups", &e))?;
        let stirred = Arc::<Stirred>::default();
        let local = Rc::new(Local {
            tasks: RefCell::default(),
            stir: Waker::from(stirred.clone()),
            stirred,
            alarm: RefCell::default(),
            runtime: Some(runtime),
            looked: Cell::new(Instant::now()),
            lookups: RefCell::default(),
        });
        LOCAL.set(Rc::downgrade(&local));
        drive::offer(local.clone());
        Ok(Some(local))
    }

    /// A further task.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.borrow().spawn_local(unconstrained(task));
    }

    /// Runs tasks for as long as any has something to do.
    fn work(&self) {
        let mut tasks = self.tasks.borrow_mut();
        let context = &mut Context::from_waker(&self.stir);
        loop {
            self.stirred.0.store(false, Ordering::Release);
            // It is ready where there is none at all.
            let _ = Pin::new(&mut *tasks).poll(context);
            if !self.stirred.0.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Runs tasks, and polls `until` whenever some have run, with looks at sockets between.
    fn run(&self, mut until: impl FnMut(&mut Context<'_>) -> Poll<()>) {
        if self.looked.get().elapsed() > HELD_UP {
            HOLD_UPS.set(HOLD_UPS.get() + 1);
        }
        let Some(runtime) = &self.runtime else { return };
        let mut polls = 0;
        runtime.block_on(poll_fn(|context| {
            polls += 1;
            // So that what comes wakes us.
            let _ = Pin::new(&mut *self.tasks.borrow_mut()).poll(context);
            until(context).map(|()| self.work())
        }));
        // Else it ended before it was looked at anything.
        if polls > 1 {
            self.looked.set(Instant::now());
        }
    }

    /// What the most impatient of the lookups wants that wait for answers.
    fn wanted(&self) -> Duration {
        let mut lookups = self.lookups.borrow_mut();
        lookups.retain(|lookup| Rc::strong_count(lookup) > 1);
        let least = lookups.iter().map(|lookup| lookup.away.get()).min().unwrap_or(Duration::MAX);
        if least == Duration::MAX { Duration::ZERO } else { least }
    }
}

impl Drive for Local {
    fn write(&self) {
        if let Some(runtime) = &self.runtime {
            let _inside = runtime.enter();
            self.work();
        }
    }

    fn turn(&self) {
        // Tasks run, then it is looked at the sockets, then tasks run that have something to read, and so on if there may be more.
        let mut looks = 1 + self.lookups.borrow().iter().map(|lookup| lookup.under_way.get()).sum::<usize>() / SOCKETS_AT_ONCE;
        self.run(|context| {
            if looks == 0 {
                return Poll::Ready(());
            }
            looks -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        });
    }

    fn glance(&self) {
        if self.looked.get().elapsed() >= self.wanted().max(GLANCE) {
            self.turn();
        }
    }

    fn sleep(&self, woken: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>, sockets: &[RawFd], most: Duration) {
        let until = Instant::now() + most;
        let mut watched: Option<Vec<AsyncFd<OwnedFd>>> = None;
        self.run(|context| {
            let mut alarm = self.alarm.borrow_mut();
            // These are made in here, where the runtime is known.
            let watched = watched.get_or_insert_with(|| {
                let watched: Vec<_> = sockets.iter().filter_map(watch).collect();
                let until = if watched.len() < sockets.len() { until.min(Instant::now() + BLIND) } else { until };
                alarm.get_or_insert_with(|| Box::pin(sleep(most))).as_mut().reset(until.into());
                watched
            });
            let readable = watched.iter().any(|fd| fd.poll_read_ready(context).is_ready());
            let over = alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(context).is_ready());
            if readable || over { Poll::Ready(()) } else { woken(context) }
        });
    }

    fn away(&self) -> Duration {
        self.wanted().saturating_sub(self.looked.get().elapsed())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Tasks go before what they run on, which does not wait for an address that is being asked for.
        drop(self.tasks.take());
        drop(self.alarm.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where a lookup makes its requests.
pub(super) struct Place(Where);

enum Where {
    Here(Rc<Local>),
    Thread(&'static Sender<Start>),
}

/// On the calling thread if that drives and `here` is set, else on one of the threads.
///
/// # Errors
/// The threads could not be started.
pub(super) fn place(here: bool) -> Result<Place, ConnectError> {
    if here && let Some(local) = Local::here()? {
        return Ok(Place(Where::Here(local)));
    }
    let threads = THREADS.get_or_init(start_threads).as_ref().map_err(|e| ConnectError::new(e.as_str()))?;
    Ok(Place(Where::Thread(&threads[NEXT.fetch_add(1, Ordering::Relaxed) % threads.len()])))
}

impl Place {
    /// Runs what `make` makes there, which tells what it wants if somebody drives it.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn spawn<F: Future<Output = ()> + 'static>(
        self,
        make: impl FnOnce(Option<Rc<Wants>>) -> F + Send + 'static,
    ) -> Result<(), ConnectError> {
        match self.0 {
            Where::Here(local) => {
                let wants = Rc::new(Wants { away: Cell::new(Duration::MAX), under_way: Cell::new(0) });
                local.lookups.borrow_mut().push(wants.clone());
                local.spawn(make(Some(wants)));
                Ok(())
            }
            Where::Thread(thread) => {
                let start: Start = Box::new(move || drop(spawn_local(make(None))));
                let gone = |_| ConnectError::new("internal error: a thread of lookups has ended; its message is above");
                thread.blocking_send(start).map_err(gone)
            }
        }
    }
}

/// As tokio's timeout, but with another look where the thread was held up meanwhile.
///
/// # Errors
/// The time is over.
pub(super) async fn within<T>(limit: Duration, what: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut what = pin!(what);
    let before = HOLD_UPS.get();
    match timeout(limit, what.as_mut()).await {
        Err(_) if HOLD_UPS.get() != before => timeout(HELD_UP, what).await,
        done => done,
    }
}

#[cfg(test)]
mod tests;
