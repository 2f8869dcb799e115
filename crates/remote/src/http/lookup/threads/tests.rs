//! A worker that runs the tasks of its requests itself: none of them is forgotten.

use std::io::Write;
use std::net::TcpListener;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;

use super::*;

/// For as long as it may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a task on a worker that drives, which turns as it is told until the task says that it is done.
fn until_done<F: Future<Output = ()> + 'static>(task: impl FnOnce(Rc<Cell<bool>>) -> F, turn: impl Fn(&dyn Drive, &Cell<bool>)) {
    let _stay = drive::enter();
    let local = Local::here().unwrap().expect("it drives");
    let done = Rc::new(Cell::new(false));
    local.spawn(task(done.clone()));
    let begun = Instant::now();
    while !done.get() {
        turn(&*local, &done);
        assert!(begun.elapsed() < PATIENCE, "the task was forgotten");
    }
}

/// A sleep that is over before it begins.
fn raised(drive: &dyn Drive, _done: &Cell<bool>) {
    drive.sleep(&mut |_| Poll::Ready(()), &[], PATIENCE);
}

/// One that ends with the task, or not at all.
fn asleep(drive: &dyn Drive, done: &Cell<bool>) {
    drive.sleep(&mut |_| if done.get() { Poll::Ready(()) } else { Poll::Pending }, &[], PATIENCE);
}

#[test]
fn who_is_woken_all_the_time_looks_at_sockets_even_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = thread::spawn(move || listener.accept().unwrap().0.write_all(b"x").unwrap());
    let reads = |done: Rc<Cell<bool>>| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        done.set(true);
    };
    until_done(reads, |drive, done| {
        drive.glance();
        raised(drive, done);
    });
    peer.join().unwrap();
}

#[test]
fn a_timer_ends_though_nothing_comes() {
    let waits = |done: Rc<Cell<bool>>| async move {
        assert!(within(Duration::from_millis(20), std::future::pending::<()>()).await.is_err());
        done.set(true);
    };
    until_done(waits, asleep);
}

#[test]
fn what_another_thread_does_for_a_task_wakes_the_worker() {
    let asks = |done: Rc<Cell<bool>>| async move {
        let found = tokio::net::lookup_host(("localhost", 1)).await.unwrap();
        assert!(found.count() > 0);
        done.set(true);
    };
    until_done(asks, |drive, done| {
        drive.write();
        asleep(drive, done);
    });
}

#[test]
fn a_task_with_much_to_do_is_not_left_half_way() {
    let works = |done: Rc<Cell<bool>>| async move {
        for _ in 0..10_000 {
            consume_budget().await;
        }
        done.set(true);
    };
    until_done(works, raised);
}
