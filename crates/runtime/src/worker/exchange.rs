//! Queues between workers, what goes into which, and the signals that wake them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Poll};
use std::thread::Thread;
use std::time::Duration;

use arrow::array::UInt32Array;
use datafusion_common::DataFusionError;
use futures::task::AtomicWaker;
use tidemill_block::{Block, clock};
use tidemill_connect::drive::{self, Drive};
use tidemill_connect::{Bell, Sockets};
use tidemill_operator::OperatorError;
use tidemill_operator::map::Expr;
use tidemill_state::hash;

/// What flows along an edge.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    Block(Block),
    /// Event time has come so far, ms.
    Watermark(i64),
    /// Nothing comes at the moment (true), so do not wait for this input's watermark.
    Idle(bool),
    /// A checkpoint passes.
    Barrier(u64),
}

/// Bytes that may wait in one queue before its sender holds back: some tens of full blocks.
pub(crate) const QUEUE_BYTES_MAX: usize = 8 << 20;

/// The queue from one worker to another along one edge.
#[derive(Default)]
pub(crate) struct Queue {
    elements: Mutex<VecDeque<Element>>,
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    /// The receiver does not read for now.
    held: AtomicBool,
}

impl Queue {
    pub fn push(&self, element: Element) {
        if let Element::Block(block) = &element {
            self.bytes.fetch_add(block.memory(), Ordering::Relaxed);
        }
        self.elements.lock().expect("no panic while held").push_back(element);
        self.waiting.fetch_add(1, Ordering::Release);
    }

    pub fn pop(&self) -> Option<Element> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let element = self.elements.lock().expect("no panic while held").pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Element::Block(block) = &element {
            self.bytes.fetch_sub(block.memory(), Ordering::Relaxed);
        }
        Some(element)
    }

    pub fn has_room(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) < QUEUE_BYTES_MAX && !self.held.load(Ordering::Relaxed)
    }

    /// Says whether the sender shall hold back whatever room there is.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }
}

/// Wakes a worker that sleeps: parked, or waiting for sockets, its own or such as it drives for others.
#[derive(Default)]
pub(crate) struct Signal {
    thread: OnceLock<Thread>,
    raised: AtomicBool,
    /// There while the worker drives for others and sleeps.
    task: AtomicWaker,
    /// The worker waits for sockets, so that only the bell wakes it.
    polling: AtomicBool,
    bell: OnceLock<Bell>,
}

impl Signal {
    /// Called once by the worker itself.
    pub fn adopt(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    pub fn raise(&self) {
        // The worker says that it polls before it looks whether it was raised, and here it is the other way round:
        // so one of the two sees the other, in the one order that all these operations have.
        if self.raised.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(task) = self.task.take() {
            return task.wake();
        }
        match self.bell.get() {
            Some(bell) if self.polling.load(Ordering::SeqCst) => bell.ring(),
            _ => {
                if let Some(thread) = self.thread.get() {
                    thread.unpark();
                }
            }
        }
    }

    /// Looks again and again, for so long, whether it is raised or there is something to read in one of the sockets.
    /// Whether one of the two is so; to be raised is then over. Who drives for others does not look: it would keep them waiting.
    pub fn poll_busily(&self, sockets: &mut Sockets, time: Duration) -> bool {
        if drive::current().is_some() {
            return false;
        }
        let until_ns = clock::now_ns() + time.as_nanos() as u64;
        loop {
            let now_ns = clock::now_ns();
            let raised = self.raised.load(Ordering::Relaxed);
            // In any case, as when it sleeps.
            let readable = sockets.look(now_ns);
            if raised {
                self.raised.swap(false, Ordering::SeqCst);
            }
            if raised || readable {
                return true;
            }
            if now_ns >= until_ns {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps until raised or until there is something to read in one of the sockets, at most `timeout`.
    pub fn wait(&self, sockets: &mut Sockets, timeout: Duration) {
        if let Some(drive) = drive::current() {
            return self.drive(drive.as_ref(), sockets, timeout);
        }
        let bell = if sockets.is_empty() { None } else { self.bell() };
        let Some(bell) = bell else { return self.park(timeout) };
        self.polling.store(true, Ordering::SeqCst);
        let raised = self.raised.swap(false, Ordering::SeqCst);
        // The sockets are looked at in any case: who is raised all the time shall read them nevertheless.
        sockets.wait(bell, if raised { Duration::ZERO } else { timeout });
        self.polling.store(false, Ordering::SeqCst);
        self.raised.swap(false, Ordering::SeqCst);
    }

    /// The same while what others have ordered is done.
    fn drive(&self, drive: &dyn Drive, sockets: &mut Sockets, timeout: Duration) {
        // Before anything takes time: what lies there may have come long ago.
        let begun_ns = clock::now_ns();
        if sockets.look(begun_ns) {
            self.raised.swap(false, Ordering::SeqCst);
            return drive.turn();
        }
        // Before it is asked how long nobody need look: a connection may come about that wants to be looked after.
        drive.write();
        let away = drive.away().min(timeout);
        if !away.is_zero() && sockets.is_empty() {
            self.park(away);
            return drive.turn();
        }
        let mut woken = |context: &mut Context<'_>| {
            // Whoever raises it after this wakes us, and whoever did before is seen.
            self.task.register(context.waker());
            if self.raised.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        };
        drive.sleep(&mut woken, &sockets.descriptors(), timeout);
        self.task.take();
        self.raised.swap(false, Ordering::SeqCst);
        sockets.look(begun_ns);
    }

    fn park(&self, timeout: Duration) {
        if !self.raised.swap(false, Ordering::AcqRel) {
            std::thread::park_timeout(timeout);
            self.raised.swap(false, Ordering::AcqRel);
        }
    }

    /// Made when it is first needed; none if the process has no file descriptor left.
    fn bell(&self) -> Option<&Bell> {
        if self.bell.get().is_none() {
            let _ = self.bell.set(Bell::new().ok()?);
        }
        self.bell.get()
    }
}

/// Divides rows among shards by the hash of their key.
pub(crate) fn scatter(block: &Block, keys: &[Expr], pending: &mut [Vec<Block>]) -> Result<(), OperatorError> {
    let rows = block.rows();
    let columns = keys.iter().map(|k| k.evaluate(&block.batch)?.into_array(rows)).collect::<Result<Vec<_>, DataFusionError>>()?;
    let mut hashes = Vec::new();
    hash::rows(&columns, rows, &mut hashes)?;
    let mut picks: Vec<Vec<u32>> = vec![Vec::with_capacity(rows / pending.len() + 16); pending.len()];
    for (row, hash) in hashes.iter().enumerate() {
        picks[hash::shard(*hash, pending.len())].push(row as u32);
    }
    for (shard, picked) in picks.into_iter().enumerate() {
        if picked.len() == rows {
            pending[shard].push(block.clone().in_no_partition());
        } else if !picked.is_empty() {
            pending[shard].push(block.take(&UInt32Array::from(picked))?.in_no_partition());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion_physical_expr::expressions::Column;
    use tidemill_connect::Watched;

    use super::*;

    /// Whatever a worker waits for: checkpoints and other workers wake it. A wake-up that is lost would take a minute.
    #[test]
    fn a_signal_wakes_who_waits_for_sockets_and_who_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, watched) = (listener.accept().unwrap().0, Arc::new(Watched::new()));
        let (mut sockets, mut none) = (Sockets::default(), Sockets::default());
        sockets.add(stream.as_raw_fd(), &watched);
        let (signal, patience) = (Signal::default(), Duration::from_secs(60));
        signal.adopt();
        for round in 0..1000 {
            std::thread::scope(|scope| {
                scope.spawn(|| signal.raise());
                signal.wait(if round % 3 == 0 { &mut none } else { &mut sockets }, patience);
            });
        }
        assert_eq!(watched.take(), None, "nothing was there");
        peer.write_all(b"x").unwrap();
        while watched.take().is_none() {
            signal.wait(&mut sockets, patience);
        }
        // One that is raised already hides nothing.
        signal.raise();
        signal.wait(&mut sockets, patience);
        assert!(watched.take().is_some());
    }

    #[test]
    fn who_looks_busily_finds_both() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, watched) = (listener.accept().unwrap().0, Arc::new(Watched::new()));
        let mut sockets = Sockets::default();
        sockets.add(stream.as_raw_fd(), &watched);
        let (signal, patience) = (Signal::default(), Duration::from_secs(60));
        signal.adopt();
        assert!(!signal.poll_busily(&mut sockets, Duration::from_millis(1)), "nothing is there");
        for _ in 0..1000 {
            std::thread::scope(|scope| {
                scope.spawn(|| signal.raise());
                assert!(signal.poll_busily(&mut sockets, patience));
            });
        }
        assert!(!signal.poll_busily(&mut sockets, Duration::ZERO), "seen once is seen");
        assert_eq!(watched.take(), None);
        peer.write_all(b"x").unwrap();
        assert!(signal.poll_busily(&mut sockets, patience) && watched.take().is_some());
    }

    /// Parks its thread in place of anything that others have ordered.
    struct Parks {
        away: Duration,
    }

    impl Drive for Parks {
        fn write(&self) {}

        fn turn(&self) {}

        fn glance(&self) {}

        fn sleep(&self, woken: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>, _sockets: &[std::os::fd::RawFd], timeout: Duration) {
            struct Unparks(Thread);
            impl std::task::Wake for Unparks {
                fn wake(self: Arc<Self>) {
                    self.0.unpark();
                }
            }
            let waker = Arc::new(Unparks(std::thread::current())).into();
            if woken(&mut Context::from_waker(&waker)).is_pending() {
                std::thread::park_timeout(timeout);
            }
        }

        fn away(&self) -> Duration {
            self.away
        }
    }

    /// The same while it drives for others, asleep with them or away from them.
    #[test]
    fn a_signal_wakes_who_drives() {
        let _stay = drive::enter();
        let (signal, patience, mut none) = (Signal::default(), Duration::from_secs(60), Sockets::default());
        signal.adopt();
        for round in 0..1000 {
            drive::offer(std::rc::Rc::new(Parks { away: if round % 2 == 0 { Duration::ZERO } else { patience } }));
            std::thread::scope(|scope| {
                scope.spawn(|| signal.raise());
                signal.wait(&mut none, patience);
            });
        }
    }

    #[test]
    fn a_queue_has_room_for_so_many_bytes() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![0; 1 << 17]));
        let block = Block::inserts(RecordBatch::try_from_iter([("k", column)]).unwrap(), 0);
        let (queue, mut blocks) = (Queue::default(), 0);
        while queue.has_room() {
            queue.push(Element::Block(block.clone()));
            queue.push(Element::Watermark(blocks as i64)); // takes no room, or a full queue could not be ended
            blocks += 1;
        }
        assert_eq!(blocks, QUEUE_BYTES_MAX.div_ceil(block.memory()));
        queue.push(Element::Barrier(1));
        assert!(!queue.has_room());
        assert!(matches!(queue.pop(), Some(Element::Block(_))));
        assert!(queue.has_room(), "room for a block where one has left");
        queue.hold(true);
        assert!(!queue.has_room(), "the receiver wants nothing, whatever room there is");
        queue.hold(false);
        assert!(queue.has_room());
        let left = std::iter::from_fn(|| queue.pop()).count();
        assert_eq!((left, queue.bytes.load(Ordering::Relaxed)), (2 * blocks, 0));
    }

    /// Rows of a split that were divided by a key belong to the key's shard, also after a restart.
    #[test]
    fn rows_divided_by_a_key_are_of_no_split() {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
        let block = Block::inserts(RecordBatch::try_from_iter([("k", column)]).unwrap(), 0).in_partition(5);
        let key: Expr = Arc::new(Column::new("k", 0));
        for shards in [1, 3] {
            let mut pending = vec![Vec::new(); shards];
            scatter(&block, std::slice::from_ref(&key), &mut pending).unwrap();
            let parts: Vec<&Block> = pending.iter().flatten().collect();
            assert_eq!(parts.iter().map(|b| b.rows()).sum::<usize>(), 100);
            assert!(parts.iter().all(|b| b.partition().is_none()));
        }
    }
}
