//! The order, the bound and the end of a mailbox.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn everything_arrives_in_order_within_the_bound() {
    let mailbox = Arc::new(Mailbox::new(10));
    // Rows sent and not yet taken.
    let open = Arc::new(AtomicUsize::new(0));
    let (theirs, counted) = (mailbox.clone(), open.clone());
    let taker = std::thread::spawn(move || {
        let (taking, mut got) = (theirs.taking(), Vec::new());
        while let Some(n) = taking.next() {
            counted.fetch_sub(n % 5, Ordering::SeqCst);
            got.push(n);
        }
        got
    });
    for n in 0..10_000 {
        let waiting = open.fetch_add(n % 5, Ordering::SeqCst);
        assert!(mailbox.send(n, n % 5).is_some());
        // One is taken and not yet counted, and one is more than fits.
        assert!(waiting <= 10 + 2 * 4 + 4, "{waiting} rows wait");
    }
    mailbox.close();
    assert_eq!(taker.join().unwrap(), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn a_large_one_goes_when_nothing_else_waits_and_what_has_no_rows_always() {
    let mailbox = Mailbox::new(10);
    // Nothing of it waits.
    assert_eq!((mailbox.send("large", 1000), mailbox.send("flush", 0)), (Some(Duration::ZERO), Some(Duration::ZERO)));
    let taking = mailbox.taking();
    assert_eq!((taking.next(), taking.next()), (Some("large"), Some("flush")));
    assert!(mailbox.send("small", 9).is_some() && mailbox.send("more", 9).is_some());
    mailbox.close();
    assert_eq!((taking.next(), taking.next(), taking.next()), (Some("small"), Some("more"), None));
}

#[test]
fn who_waits_for_room_says_how_long() {
    let mailbox = Mailbox::new(1);
    assert_eq!(mailbox.send(1, 1), Some(Duration::ZERO));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| mailbox.send(2, 1));
        while !mailbox.lock().sender_waits {
            std::thread::yield_now();
        }
        let taking = mailbox.taking();
        assert_eq!(taking.next(), Some(1));
        assert!(sender.join().unwrap() > Some(Duration::ZERO));
    });
}

/// A sender that waits for room must not wait for ever when the taker ends, nor anybody for what is in the
/// queue.
#[test]
fn a_taker_that_ends_is_known() {
    let mailbox = Arc::new(Mailbox::new(1));
    let answer = Arc::new(());
    assert!(mailbox.send(answer.clone(), 1).is_some());
    let theirs = mailbox.clone();
    let taker = std::thread::spawn(move || {
        let _taking = theirs.taking();
        panic!("as a test wants it");
    });
    assert!(mailbox.send(answer.clone(), 1).is_none(), "it waits until the taker has ended");
    assert!(taker.join().is_err());
    assert_eq!(Arc::strong_count(&answer), 1, "nothing is kept of what was not taken");
    assert!(mailbox.send(answer, 0).is_none());
}
