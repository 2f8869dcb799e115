//! The thread that finds the leaders of partitions: of new ones, and of those whose leader could not be reached or leads no
//! longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fetcher::{Assigned, REST, Shared, State, start_broker};
use super::link::Link;
use super::protocol::{self, Leaders, code, named};
use super::slot::{Event, Slot};
use crate::transaction::wire::Broker;

/// How long brokers may say that a topic or partition is not there until it is believed: after a start some know less than
/// others for a moment.
const MISSING: Duration = Duration::from_secs(3);

/// Looks for leaders until the source is gone.
pub fn run(shared: &Arc<Shared>) {
    let mut failures = 0;
    while let Some((topics, servers)) = next(shared) {
        let found = Broker::any(&servers, &shared.access, Instant::now())
            .and_then(|broker| Link::over(broker, shared.settings.patience))
            .and_then(|mut link| protocol::leaders(&mut link, &shared.settings.client, &topics));
        match found {
            Ok(found) => {
                failures = 0;
                apply(shared, found);
            }
            Err(why) => {
                failures += 1;
                shared.outage.error(&why);
                shared.outage.set_down();
                let again = Instant::now() + Shared::rest(failures);
                for assigned in shared.state().partitions.values_mut().filter(|a| lost(a)) {
                    assigned.again = again;
                }
            }
        }
    }
}

/// Whether a partition waits for a leader.
fn lost(assigned: &Assigned) -> bool {
    assigned.leader.is_none() && !assigned.over
}

/// Waits until somebody has no leader: the topics, and whom to ask. None if the source is gone.
fn next(shared: &Shared) -> Option<(Vec<String>, String)> {
    let mut state = shared.state();
    loop {
        if state.stopped {
            return None;
        }
        let waiting = || state.partitions.iter().filter(|(_, assigned)| lost(assigned));
        let first = waiting().map(|(_, assigned)| assigned.again).min();
        if first.is_some_and(|first| first <= Instant::now()) {
            let mut topics: Vec<String> = waiting().map(|((topic, _), _)| topic.clone()).collect();
            topics.dedup();
            // Those that were found last are likelier there than those to begin with.
            let known = state.addresses.values().map(String::as_str);
            let servers: Vec<&str> = known.chain([shared.servers.as_str()]).collect();
            return Some((topics, servers.join(",")));
        }
        state = shared.wait(state, first);
    }
}

/// Gives partitions to the threads of their leaders.
fn apply(shared: &Arc<Shared>, found: Leaders) {
    let mut events = Vec::new();
    {
        let mut guard = shared.state();
        let state = &mut *guard;
        judge(state, &found, Instant::now(), &mut events);
        for assigned in state.partitions.values_mut().filter(|a| !a.over) {
            let Some(leader) = assigned.leader else { continue };
            let node = state.nodes.entry(leader).or_default();
            let Some(address) = found.brokers.get(&leader).filter(|_| !node.running) else { continue };
            match start_broker(shared, leader, address.clone()) {
                Ok(()) => node.running = true,
                Err(_) => {
                    // The process has no threads left: maybe in a moment.
                    (assigned.leader, assigned.again) = (None, Instant::now() + Shared::rest(u32::MAX));
                }
            }
        }
        state.addresses = found.brokers;
    }
    for (slot, event) in events {
        slot.put(event);
    }
    shared.changed();
}

/// Notes the leaders that were found, and whose readers are to be told that there will be none.
fn judge(state: &mut State, found: &Leaders, now: Instant, events: &mut Vec<(Arc<Slot>, Event)>) {
    for ((topic, partition), assigned) in state.partitions.iter_mut().filter(|(_, assigned)| lost(assigned)) {
        let code = match found.topics.get(topic).map(|(code, partitions)| (*code, partitions.get(partition))) {
            Some((code::NONE, Some(leader))) if found.brokers.contains_key(&leader.node) => {
                assigned.doubtful |= leader.epoch > assigned.read_epoch && assigned.read_epoch >= 0;
                (assigned.leader, assigned.epoch, assigned.missing) = (Some(leader.node), leader.epoch, None);
                continue;
            }
            Some((code::NONE, Some(leader))) if leader.code != code::NONE => leader.code,
            Some((code::NONE, Some(_))) => code::LEADER_NOT_AVAILABLE,
            Some((code::NONE, None)) | None => code::UNKNOWN_TOPIC_OR_PARTITION,
            Some((other, _)) => other,
        };
        assigned.again = now + REST;
        assigned.missing = (code == code::UNKNOWN_TOPIC_OR_PARTITION).then(|| assigned.missing.unwrap_or(now));
        let gone = assigned.missing.is_some_and(|since| now.duration_since(since) >= MISSING);
        if gone || !code::passing(code) {
            assigned.over = true;
            events.push((assigned.slot.clone(), Event::Failed(code, named(code).to_string())));
        }
    }
}

#[cfg(test)]
mod tests;
