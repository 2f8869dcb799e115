//! Who is told when a batch is to stop.

use std::sync::atomic::AtomicUsize;

use tidemill_connect::{ConnectError, SinkContext, Writer};

use super::*;

/// Counts how often it is told.
#[derive(Default)]
struct Told(AtomicUsize);

impl Sink for Told {
    fn writer(&self, _: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        Err(ConnectError::new("nothing is written here"))
    }

    fn stopping(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[track_caller]
fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writers of a batch heard nothing of a stop while they waited: no rows came behind which it was looked for.
#[test]
fn sinks_are_told_once() {
    let stop = Stop::default();
    let watch = Watch::new(&stop, Duration::from_millis(300)).unwrap();
    let add = || {
        let (sink, cancelled) = (Arc::new(Told::default()), Arc::new(AtomicBool::new(false)));
        let watched: Arc<dyn Sink> = sink.clone();
        watch.add(&watched, &cancelled);
        (sink, cancelled)
    };
    let (first, first_cancelled) = add();
    std::thread::sleep(2 * LOOK);
    assert!(first.0.load(Ordering::Relaxed) == 0 && !first_cancelled.load(Ordering::Relaxed));
    stop.stop();
    soon("the sink is told", || first.0.load(Ordering::Relaxed) > 0);
    // One that is opened when it was asked long ago.
    let (second, second_cancelled) = add();
    soon("the other is told", || second.0.load(Ordering::Relaxed) > 0);
    soon("writers give up", || first_cancelled.load(Ordering::Relaxed) && second_cancelled.load(Ordering::Relaxed));
    drop(watch);
    assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (1, 1));
}
