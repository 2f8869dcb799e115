//! The connections to a server, on one thread ([`super::threads`]): which request goes where, when there shall be more, and the
//! way between a shard's lookup and that thread.
//!
//! A request goes to the connection that was used last, else waits for one; connections are made while
//! requests wait. Each connection is a task ([`super::connection`]) that takes the next request itself, so
//! that a busy pool hands nothing over. Where many are under way, answers are gathered for a small part of the time that
//! one takes before the shard hears of them: to wake it, and for it to order further ones, costs as much for one answer as for
//! ten. Nothing here waits, and everything but [`Link`] stays on its thread.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::{Duration, Instant};

use tidemill_connect::{Failure, Waker};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::sleep;

use super::connection;
use super::server::{Job, Outcome, Server};
use super::threads::Wants;

/// Connections that are being made at once: a listener's queue is short.
const CONNECTING_MAX: usize = 64;
/// How long the addresses of a name are taken for true.
const ADDRESSES_FOR: Duration = Duration::from_secs(10);

/// Answers are gathered if so many calls are under way.
const GATHER_CALLS: usize = 64;
/// For the time in which so many come,
const GATHER_ANSWERS: u32 = 8;
/// but no longer than a call takes on average divided by this,
const GATHER_DIVISOR: u32 = 20;
/// nor than this.
const GATHER_MAX: Duration = Duration::from_millis(5);
/// Timers go by milliseconds, so that one of a single one may take twice as long.
const GATHER_MIN: Duration = Duration::from_millis(2);
/// The same for a worker that makes the requests itself: it is woken once for what has come, and writes what is asked next,
/// so that even a few at once are worth it. Its own timer is a fine one.
const AWAY_CALLS: usize = 20;
const AWAY_DIVISOR: u32 = 12;
const AWAY_MAX: Duration = Duration::from_millis(10);
const AWAY_MIN: Duration = Duration::from_micros(500);
/// The last call counts for this part of the average, as its divisor.
const NEWEST_DIVISOR: u32 = 16;

/// What the lookup of a shard and its pool share. What it holds is bounded by the calls under way, which the
/// operator bounds.
pub(super) struct Link {
    orders: Mutex<Vec<Order>>,
    ordered: Notify,
    done: Mutex<Vec<(u64, Outcome)>>,
    wake: Waker,
    closed: AtomicBool,
}

/// What the lookup wants.
pub(super) enum Order {
    Ask(Job),
    Cancel(u64),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub fn new(wake: Waker) -> Self {
        Link { orders: Mutex::default(), ordered: Notify::new(), done: Mutex::default(), wake, closed: AtomicBool::new(false) }
    }

    /// Orders something of the pool.
    pub fn order(&self, order: Order) {
        let mut orders = lock(&self.orders);
        orders.push(order);
        let first = orders.len() == 1;
        drop(orders);
        // For further ones it was told already.
        if first {
            self.ordered.notify_one();
        }
    }

    /// What came of requests since it was asked last: each that was ordered comes out once.
    pub fn take_done(&self, into: &mut Vec<(u64, Outcome)>) {
        std::mem::swap(&mut *lock(&self.done), into);
    }

    /// Ends the pool and what is under way.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ordered.notify_one();
    }

    /// Puts down what came of a request; whether the shard is to be told, as it is not for further ones.
    #[must_use]
    fn put(&self, call: u64, outcome: Outcome) -> bool {
        let mut done = lock(&self.done);
        done.push((call, outcome));
        done.len() == 1
    }

    fn finish(&self, call: u64, outcome: Outcome) {
        if self.put(call, outcome) {
            self.wake.wake();
        }
    }
}

/// The connections of a lookup.
pub(super) struct Pool {
    pub server: Server,
    link: Arc<Link>,
    queue: RefCell<VecDeque<Job>>,
    /// Connections without work, the one used last at the end.
    idle: RefCell<Vec<Rc<Seat>>>,
    /// Where calls are under way, and since when.
    running: RefCell<HashMap<u64, (Rc<Seat>, Instant)>>,
    /// How long one takes on average; nothing before the first.
    takes: Cell<Duration>,
    /// The shard is to be told of answers when a timer has run off; somebody may tell it before.
    gathering: Rc<Cell<bool>>,
    /// What the shard's worker, if it runs this pool, is told.
    wants: Option<Rc<Wants>>,
    /// Connections, those being made included.
    open: Cell<usize>,
    connecting: Cell<usize>,
    /// The server's addresses and when they were found out.
    addresses: tokio::sync::Mutex<Option<(Vec<SocketAddr>, Instant)>>,
    tasks: RefCell<JoinSet<()>>,
}

/// Where a connection gets its work.
#[derive(Default)]
pub(super) struct Seat {
    job: RefCell<Option<Job>>,
    cancelled: Cell<bool>,
    waker: RefCell<Option<task::Waker>>,
}

impl Seat {
    /// The work that was given while there was none, and nothing else: whoever gives some wakes the task.
    pub fn poll_job(&self, context: &task::Context<'_>) -> Option<Job> {
        let job = self.job.take();
        if job.is_none() {
            self.watch(context);
        }
        job
    }

    /// Remembers whom to wake.
    pub fn watch(&self, context: &task::Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(known) => known.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// Serves the lookup at the other end of `link` until that closes it.
pub(super) async fn serve(link: Arc<Link>, server: Server, wants: Option<Rc<Wants>>) {
    let pool = Rc::new(Pool {
        server,
        link: link.clone(),
        queue: RefCell::default(),
        idle: RefCell::default(),
        running: RefCell::default(),
        takes: Cell::default(),
        gathering: Rc::default(),
        wants,
        open: Cell::new(0),
        connecting: Cell::new(0),
        addresses: tokio::sync::Mutex::new(None),
        tasks: RefCell::new(JoinSet::new()),
    });
    let mut orders = Vec::new();
    while !link.closed.load(Ordering::Acquire) {
        link.ordered.notified().await;
        std::mem::swap(&mut *lock(&link.orders), &mut orders);
        for order in orders.drain(..) {
            match order {
                Order::Ask(job) => pool.ask(job),
                Order::Cancel(call) => pool.cancel(call),
            }
        }
        pool.grow();
    }
    // The tasks hold the pool, and the pool them.
    pool.tasks.borrow_mut().abort_all();
}

impl Pool {
    fn ask(&self, job: Job) {
        let idle = self.idle.borrow_mut().pop();
        match idle {
            Some(seat) => {
                self.run(job.call, &seat);
                *seat.job.borrow_mut() = Some(job);
                seat.wake();
            }
            None => self.queue.borrow_mut().push_back(job),
        }
    }

    fn run(&self, call: u64, seat: &Rc<Seat>) {
        self.running.borrow_mut().insert(call, (seat.clone(), Instant::now()));
        self.tell();
    }

    /// Tells the worker what to look for, if it runs this.
    fn tell(&self) {
        let Some(wants) = &self.wants else { return };
        let running = self.running.borrow().len();
        wants.under_way.set(running);
        wants.away.set(match running {
            _ if self.connecting.get() > 0 => Duration::ZERO,
            0 => Duration::MAX,
            _ => away_for(self.takes.get(), running),
        });
    }

    fn cancel(&self, call: u64) {
        let running = self.running.borrow().get(&call).cloned();
        if let Some((seat, _)) = running {
            seat.cancelled.set(true);
            seat.wake();
            return;
        }
        let mut queue = self.queue.borrow_mut();
        if let Some(at) = queue.iter().position(|job| job.call == call) {
            queue.remove(at);
            drop(queue);
            self.link.finish(call, Outcome::Cancelled);
        }
    }

    /// Makes connections for requests that wait.
    pub fn grow(self: &Rc<Self>) {
        let waiting = self.queue.borrow().len();
        while waiting > self.connecting.get() && self.connecting.get() < CONNECTING_MAX && self.open.get() < self.server.connections_max {
            self.connecting.set(self.connecting.get() + 1);
            self.open.set(self.open.get() + 1);
            self.tell();
            let mut tasks = self.tasks.borrow_mut();
            // Those that have ended are let go.
            while tasks.try_join_next().is_some() {}
            // A worker that runs this itself has no use for tasks that yield.
            let _ = match self.wants {
                Some(_) => tasks.spawn_local(unconstrained(connection::run(self.clone()))),
                None => tasks.spawn_local(connection::run(self.clone())),
            };
        }
    }

    /// A connection has come about or has failed.
    pub fn connected(&self) {
        self.connecting.set(self.connecting.get() - 1);
        self.tell();
    }

    /// A connection could not be made. If there is no other, the request that waits for longest fails for
    /// it; otherwise requests wait for the others, and the next request tries again.
    pub fn refused(self: &Rc<Self>, reason: &str) {
        self.open.set(self.open.get() - 1);
        if self.open.get() > self.connecting.get() {
            return;
        }
        let job = self.queue.borrow_mut().pop_front();
        if let Some(job) = job {
            self.link.finish(job.call, Outcome::Failed(Failure::passing(reason)));
        }
        self.grow();
    }

    /// A connection has ended.
    pub fn left(self: &Rc<Self>) {
        self.open.set(self.open.get() - 1);
        self.grow();
    }

    /// The next request for a connection; without one the connection is idle from now on.
    pub fn next(&self, seat: &Rc<Seat>) -> Option<Job> {
        seat.cancelled.set(false);
        let job = self.queue.borrow_mut().pop_front();
        match &job {
            Some(job) => self.run(job.call, seat),
            None => self.idle.borrow_mut().push(seat.clone()),
        }
        job
    }

    /// A connection ends while it is idle. Work that it was given just now goes elsewhere.
    pub fn leave(self: &Rc<Self>, seat: &Rc<Seat>) {
        self.idle.borrow_mut().retain(|other| !Rc::ptr_eq(other, seat));
        let job = seat.job.take();
        if let Some(job) = job {
            self.again(job, seat);
        }
    }

    /// Puts a request back to the front, because its connection was closed before it was made.
    pub fn again(self: &Rc<Self>, job: Job, seat: &Seat) {
        self.running.borrow_mut().remove(&job.call);
        self.tell();
        if seat.is_cancelled() {
            self.link.finish(job.call, Outcome::Cancelled);
            return;
        }
        let idle = self.idle.borrow_mut().pop();
        match idle {
            Some(other) => {
                self.run(job.call, &other);
                *other.job.borrow_mut() = Some(job);
                other.wake();
            }
            None => self.queue.borrow_mut().push_front(job),
        }
    }

    /// What came of a request.
    pub fn finish(&self, call: u64, outcome: Outcome) {
        let ran = self.running.borrow_mut().remove(&call);
        // What was cut short, or refused at once, says nothing about others.
        if let (Some((_, begun)), Outcome::Body(_) | Outcome::Nothing) = (ran, &outcome) {
            let (took, before) = (begun.elapsed(), self.takes.get());
            let average = before - before / NEWEST_DIVISOR + took / NEWEST_DIVISOR;
            self.takes.set(if before.is_zero() { took } else { average });
        }
        if self.wants.is_some() {
            self.tell();
            return self.link.finish(call, outcome);
        }
        let running = self.running.borrow().len();
        if !self.link.put(call, outcome) {
            // Those that were begun together come together: hardly any is left to gather.
            if running < GATHER_CALLS / 4 && self.gathering.replace(false) {
                self.link.wake.wake();
            }
            return;
        }
        let Some(long) = gather_for(self.takes.get(), running + 1) else { return self.link.wake.wake() };
        self.gathering.set(true);
        let (link, gathering) = (self.link.clone(), self.gathering.clone());
        spawn_local(async move {
            sleep(long).await;
            if gathering.replace(false) {
                link.wake.wake();
            }
        });
    }

    /// The addresses of the server.
    ///
    /// # Errors
    /// The name is not known.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let mut known = self.addresses.lock().await;
        if let Some((addresses, at)) = &*known
            && at.elapsed() < ADDRESSES_FOR
        {
            return Ok(addresses.clone());
        }
        let host = &self.server.host;
        let found =
            tokio::net::lookup_host((host.as_str(), self.server.port)).await.map_err(|e| format!("finding the host '{host}': {e}"))?;
        let addresses: Vec<SocketAddr> = found.collect();
        *known = Some((addresses.clone(), Instant::now()));
        Ok(addresses)
    }
}

/// How long to gather answers where so many calls are under way that take so long each; none if that does not pay.
fn gather_for(takes: Duration, running: usize) -> Option<Duration> {
    let coming = takes * GATHER_ANSWERS / u32::try_from(running.max(1)).unwrap_or(u32::MAX);
    let long = coming.min(takes / GATHER_DIVISOR).min(GATHER_MAX);
    (running >= GATHER_CALLS && long >= GATHER_MIN).then_some(long)
}

/// How long nobody need look for answers where so many calls are under way that take so long each.
fn away_for(takes: Duration, running: usize) -> Duration {
    let coming = takes * GATHER_ANSWERS / u32::try_from(running.max(1)).unwrap_or(u32::MAX);
    let long = coming.min(takes / AWAY_DIVISOR).min(AWAY_MAX);
    if running >= AWAY_CALLS && long >= AWAY_MIN { long } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_stays_away_for_a_small_part_of_a_call() {
        let ms = Duration::from_millis;
        assert_eq!(away_for(ms(60), AWAY_CALLS), ms(5));
        assert_eq!(away_for(ms(60), AWAY_CALLS - 1), Duration::ZERO, "few");
        assert_eq!(away_for(ms(60_000), 30), AWAY_MAX);
        assert_eq!(away_for(ms(100), 100), ms(8));
        assert_eq!(away_for(ms(100), 1000), Duration::from_micros(800));
        assert_eq!(away_for(ms(5), 100), Duration::ZERO, "quick ones");
    }

    #[test]
    fn answers_are_gathered_where_few_come_at_once() {
        let ms = Duration::from_millis;
        assert_eq!(gather_for(ms(100), GATHER_CALLS), Some(ms(5)));
        assert_eq!(gather_for(ms(60), 100), Some(ms(3)));
        assert_eq!(gather_for(ms(90), 300), Some(Duration::from_micros(2400)));
        assert_eq!(gather_for(ms(60_000), 1000), Some(GATHER_MAX));
        assert_eq!(gather_for(ms(100), GATHER_CALLS - 1), None, "too few");
        assert_eq!(gather_for(ms(10), 100), None, "too fast");
        assert_eq!(gather_for(ms(100), 1000), None, "many come at once anyway");
    }
}
