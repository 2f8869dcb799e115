//! Partitions get leaders, wait for them or are gone.

use std::collections::BTreeMap;

use tidemill_connect::Waker;

use super::*;
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
