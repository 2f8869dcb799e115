//! The thread that finds the leaders of partitions: of new ones, and of those whose leader could not be reached or leads no
//! longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fetcher::{Assigned, Shared, State, start_broker};
use super::link::Link;
use super::protocol::{self, Leaders, code, named};
use super::slot::{Event, Slot};
use crate::transaction::wire::Broker;

/// How long brokers may say that a topic or partition is not there until it is believed: after a start some know less than
/// others for a moment.
const MISSING: Duration = Duration::from_secs(3);
/// How long a partition may be without a leader until somebody is told: an election takes a moment.
const TELL_AFTER: Duration = Duration::from_secs(5);
/// Partitions that a notice names.
const NAMED_MAX: usize = 10;

/// How a partition waits that nobody leads, as brokers say.
#[derive(Clone, Copy, Debug)]
pub struct Leaderless {
    since: Instant,
    /// How often brokers said so.
    looks: u32,
    /// There was a notice.
    told: bool,
}

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
    let notices = {
        let mut guard = shared.state();
        let state = &mut *guard;
        let notices = judge(state, &found, Instant::now(), &mut events);
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
        notices
    };
    for (slot, event) in events {
        slot.put(event);
    }
    shared.changed();
    for notice in notices {
        tidemill_connect::notice(&format!("{}: {notice}", shared.outage.name()));
    }
}

/// Notes the leaders that were found, and whose readers are to be told that there will be none. Gives what users are to know.
fn judge(state: &mut State, found: &Leaders, now: Instant, events: &mut Vec<(Arc<Slot>, Event)>) -> Vec<String> {
    let (mut lacking, mut back) = (Told::new(), Told::new());
    for ((topic, partition), assigned) in state.partitions.iter_mut().filter(|(_, assigned)| lost(assigned)) {
        let code = match found.topics.get(topic).map(|(code, partitions)| (*code, partitions.get(partition))) {
            Some((code::NONE, Some(leader))) if found.brokers.contains_key(&leader.node) => {
                assigned.doubtful |= leader.epoch > assigned.read_epoch && assigned.read_epoch >= 0;
                (assigned.leader, assigned.epoch, assigned.missing) = (Some(leader.node), leader.epoch, None);
                if let Some(waited) = assigned.leaderless.take().filter(|waited| waited.told) {
                    add(&mut back, topic, *partition, now.duration_since(waited.since));
                }
                continue;
            }
            Some((code::NONE, Some(leader))) if leader.code != code::NONE => leader.code,
            Some((code::NONE, Some(_))) => code::LEADER_NOT_AVAILABLE,
            Some((code::NONE, None)) | None => code::UNKNOWN_TOPIC_OR_PARTITION,
            Some((other, _)) => other,
        };
        let waits = assigned.leaderless.get_or_insert(Leaderless { since: now, looks: 0, told: false });
        if assigned.again <= now {
            // Otherwise somebody else's turn has answered for it.
            waits.looks = waits.looks.saturating_add(1);
            assigned.again = now + Shared::rest(waits.looks);
        }
        assigned.missing = (code == code::UNKNOWN_TOPIC_OR_PARTITION).then(|| assigned.missing.unwrap_or(now));
        let gone = assigned.missing.is_some_and(|since| now.duration_since(since) >= MISSING);
        if gone || !code::passing(code) {
            assigned.over = true;
            events.push((assigned.slot.clone(), Event::Failed(code, named(code).to_string())));
        } else if !waits.told && now.duration_since(waits.since) >= TELL_AFTER {
            waits.told = true;
            add(&mut lacking, topic, *partition, now.duration_since(waits.since));
        }
    }
    let lacking = lacking.iter().map(|(topic, (partitions, time))| {
        format!("{}: no leader for {} s; reading on when there is one", which(topic, partitions), time.as_secs())
    });
    let back = back.iter().map(|(topic, (partitions, time))| {
        let has = if partitions.len() == 1 { "it has a leader" } else { "they have leaders" };
        format!("{}: {has} again, after {} s", which(topic, partitions), time.as_secs())
    });
    lacking.chain(back).collect()
}

/// What notices are about, by topic: partitions, and the longest time that one of them was without a leader.
type Told<'a> = BTreeMap<&'a str, (Vec<i32>, Duration)>;

fn add<'a>(told: &mut Told<'a>, topic: &'a str, partition: i32, time: Duration) {
    let (partitions, longest) = told.entry(topic).or_default();
    partitions.push(partition);
    *longest = time.max(*longest);
}

/// Partitions of a topic as a notice names them.
fn which(topic: &str, partitions: &[i32]) -> String {
    let names: Vec<String> = partitions.iter().take(NAMED_MAX).map(i32::to_string).collect();
    let more = match partitions.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("topic {topic}, partition{} {}{more}", if partitions.len() == 1 { "" } else { "s" }, names.join(", "))
}

#[cfg(test)]
mod tests;
