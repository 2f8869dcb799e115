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
    assert!(one.set(512 << 10) && two.set(512 << 10) && !two.set((512 << 10) + 1) && room.taken() == 1 << 20);
    assert!(!two.wait(600 << 10), "nobody makes room");
    assert!(one.set(100 << 10) && two.wait(900 << 10));
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
        let waiting = scope.spawn(move || two.wait(1 << 20));
        drop(one);
        assert!(waiting.join().unwrap());
    });
    assert_eq!(room.taken(), 0);
}

/// Buffers of busy connections, each kept for life, took what frames needed.
#[test]
fn what_only_makes_reading_faster_counts_apart() {
    let room = room(Duration::ZERO);
    let [mut one, mut two] = [Share::new(&room), Share::new(&room)];
    assert!(one.set_spare(512 << 10) && !two.set_spare(100 << 10) && two.set_spare(UNCOUNTED_BYTES), "half as much again");
    assert!(room.taken() == 0 && !one.is_counted());
    assert!(two.set(1 << 20), "messages have all of their memory");
    assert!(one.set_spare(400 << 10) && two.set_spare(112 << 10) && !one.set_spare(401 << 10));
    drop((one, two));
    assert_eq!(room.spare.load(Ordering::Relaxed), 0);
    assert!(Share::default().set_spare(usize::MAX), "nothing is counted without a room");
}

#[test]
fn nobody_waits_once_all_is_stopped_and_everybody_while_a_job_does() {
    let room = room(Duration::ZERO);
    let (mut one, mut two) = (Share::new(&room), Share::new(&room));
    assert!(one.set(1 << 20));
    std::thread::scope(|scope| {
        let held_up = one.held_up();
        let waiting = scope.spawn(|| two.wait(1 << 20));
        // For longer than the limit, until the listener goes.
        std::thread::sleep(3 * ROOM_CHECK);
        assert!(!waiting.is_finished());
        room.peers.stop();
        assert!(!waiting.join().unwrap());
        drop(held_up);
    });
    assert_eq!(room.held_up.load(Ordering::Relaxed), 0);
}

/// Whoever waited did so for ever while any job stood, although those who had the room waited, too.
#[test]
fn who_waits_for_others_that_wait_is_let_go_whatever_a_job_does() {
    let room = room(Duration::from_millis(1));
    let [mut one, mut two, mut three] = [(); 3].map(|()| Share::new(&room));
    assert!(one.set(400 << 10) && two.set(400 << 10) && three.set(100 << 10));
    let empty = Share::new(&room);
    let _held_up = (three.held_up(), empty.held_up());
    assert!(!two.wait(800 << 10), "what the job keeps is not enough");
}
