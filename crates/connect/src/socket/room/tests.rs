//! Memory that is shared, and waited for.

use super::*;

fn room(wait: Duration) -> Arc<Room> {
    let room = Arc::new(Room::new(Arc::default(), 0));
    room.limit(1 << 20, wait);
    room
}

#[test]
fn what_is_held_together_is_bounded() {
    let room = room(Duration::from_millis(20));
    let [mut one, mut two] = [Share::new(&room), Share::new(&room)];
    assert!(one.set(UNCOUNTED_BYTES) && room.taken() == 0, "little does not count");
    assert!(one.set_spare(512 << 10) && !two.set_spare(100 << 10), "the other half is for what is needed");
    assert!(two.set(512 << 10) && !two.set((512 << 10) + 1) && room.taken() == 1 << 20);
    assert!(!two.wait(600 << 10, || false), "nobody makes room");
    assert!(one.set(100 << 10) && two.wait(900 << 10, || false));
    drop((one, two));
    assert_eq!(room.taken(), 0);
    assert!(Share::default().set(usize::MAX), "nothing is counted without a room");
}

#[test]
fn who_waits_gets_what_others_leave() {
    let room = room(Duration::from_secs(120));
    let (mut one, mut two) = (Share::new(&room), Share::new(&room));
    assert!(one.set(1 << 20));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || two.wait(1 << 20, || false));
        drop(one);
        assert!(waiting.join().unwrap());
    });
    assert_eq!(room.taken(), 0);
}

#[test]
fn nobody_waits_once_all_is_stopped_and_everybody_while_a_job_does() {
    let room = room(Duration::ZERO);
    let (mut one, mut two) = (Share::new(&room), Share::new(&room));
    assert!(one.set(1 << 20));
    let asked = AtomicUsize::new(0);
    // For longer than the limit, until the listener goes.
    let held_up = || {
        if asked.fetch_add(1, Ordering::Relaxed) == 3 {
            room.peers.stop();
        }
        true
    };
    assert!(!two.wait(1 << 20, held_up));
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}
