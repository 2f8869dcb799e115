//! Partitions get leaders, wait for them or are gone.

use std::collections::BTreeMap;

use tidemill_connect::Waker;

use super::*;
use crate::fetch::fetcher::REST;
use crate::fetch::protocol::Leader;

fn state(partitions: &[(&str, i32)], now: Instant) -> State {
    let mut state = State::default();
    for (topic, partition) in partitions {
        let partition = (topic.to_string(), *partition);
        let slot = Arc::new(Slot::new(partition.clone(), Waker::noop()));
        let assigned = Assigned {
            slot,
            next: 0,
            leader: None,
            epoch: -1,
            read_epoch: if partition.1 == 0 { 3 } else { -1 },
            doubtful: false,
            again: now,
            missing: None,
            leaderless: None,
            over: false,
            end: None,
        };
        state.partitions.insert(partition, assigned);
    }
    state
}

#[test]
fn partitions_get_leaders_wait_for_them_or_are_gone() {
    let now = Instant::now();
    let mut state = state(&[("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0)], now);
    let leader = |node, code| Leader { code, node, epoch: 4 };
    let partitions = BTreeMap::from([(0, leader(7, code::NONE)), (1, leader(-1, code::LEADER_NOT_AVAILABLE))]);
    let found = Leaders {
        brokers: BTreeMap::from([(7, "h:1".to_string())]),
        topics: BTreeMap::from([
            ("a".to_string(), (code::NONE, partitions)),
            ("b".to_string(), (code::UNKNOWN_TOPIC_OR_PARTITION, BTreeMap::new())),
            ("c".to_string(), (29, BTreeMap::new())),
        ]),
    };
    let mut events = Vec::new();
    judge(&mut state, &found, now, &mut events);
    let told = |events: &[(Arc<Slot>, Event)]| events.iter().map(|(slot, _)| slot.partition.0.clone()).collect::<Vec<_>>();
    assert_eq!(told(&events), ["c"], "no right to it");
    let of = |state: &State, topic: &str, partition| {
        let assigned = &state.partitions[&(topic.to_string(), partition)];
        (assigned.leader, assigned.epoch, assigned.over, assigned.missing.is_some())
    };
    assert_eq!(of(&state, "a", 0), (Some(7), 4, false, false));
    assert!(state.partitions[&("a".to_string(), 0)].doubtful, "it was read under another leader");
    assert_eq!(of(&state, "a", 1), (None, -1, false, false));
    assert_eq!(of(&state, "a", 2), (None, -1, false, true));
    assert_eq!(of(&state, "b", 0), (None, -1, false, true));
    // Still not there, and it is believed.
    judge(&mut state, &found, now + MISSING, &mut events);
    assert_eq!(told(&events), ["c", "a", "b"]);
    judge(&mut state, &found, now + MISSING, &mut events);
    assert_eq!(events.len(), 3, "told once");
}

#[test]
fn a_partition_without_a_leader_is_asked_for_ever_less_often_and_told_of_once() {
    let begin = Instant::now();
    let mut state = state(&[("a", 1), ("a", 2)], begin);
    let of = |node, code| Leader { code, node, epoch: 4 };
    let found = |second| Leaders {
        brokers: BTreeMap::from([(7, "h:1".to_string())]),
        topics: BTreeMap::from([("a".to_string(), (code::NONE, BTreeMap::from([(1, of(-1, code::LEADER_NOT_AVAILABLE)), (2, second)])))]),
    };
    let (mut now, mut looks, mut events) = (begin, 0, Vec::new());
    let mut told: Vec<String> = Vec::new();
    while now < begin + Duration::from_secs(60) {
        told.extend(judge(&mut state, &found(of(-1, code::LEADER_NOT_AVAILABLE)), now, &mut events));
        now = state.partitions.values().map(|assigned| assigned.again).min().unwrap();
        looks += 1;
    }
    assert!((20..50).contains(&looks), "a pause of two seconds at most: {looks} looks in a minute");
    assert!(events.is_empty(), "the reader waits on");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("topic a, partitions 1, 2: no leader for "), "{told:?}");
    // One of them is led again; what it rests next time is short, and nothing is told of a moment.
    let told = judge(&mut state, &found(of(7, code::NONE)), begin + Duration::from_secs(61), &mut events);
    assert_eq!(told, ["topic a, partition 2: it has a leader again, after 61 s"]);
    state.partitions.get_mut(&("a".to_string(), 2)).unwrap().leader = None;
    let now = begin + Duration::from_secs(90);
    assert!(judge(&mut state, &found(of(-1, code::LEADER_NOT_AVAILABLE)), now, &mut events).is_empty());
    assert_eq!(state.partitions[&("a".to_string(), 2)].again, now + REST);
    assert!(judge(&mut state, &found(of(7, code::NONE)), now + REST, &mut events).is_empty());
}

#[test]
fn many_partitions_are_told_of_in_one_line() {
    assert_eq!(which("t", &[3]), "topic t, partition 3");
    assert_eq!(which("t", &[3, 4]), "topic t, partitions 3, 4");
    assert_eq!(which("t", &(0..12).collect::<Vec<_>>()), "topic t, partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
}
