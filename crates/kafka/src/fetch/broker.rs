//! The thread that fetches from one broker, over one connection: all partitions that it leads in one request, and the next
//! request as soon as the answer is read, while readers still decode it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fetcher::Shared;
use super::link::Link;
use super::pieces::Piece;
use super::protocol::{self, Asked, Extent, Front, code};
use super::slot::{Event, Slot};
use crate::partitions::Partition;

/// How long a broker is asked to wait, ms, where it may soon be asked for more: partitions without room will have it, and
/// further ones come one after the other at the start. Doubled with each answer that has nothing.
const SHORT_WAIT_MS: i32 = 10;

/// Fetches until there is nothing to be fetched from this broker any more, or it fails.
pub fn run(shared: &Arc<Shared>, node: i32, address: &str) {
    let failure = Session { shared, node, turns: Turns::default(), quiet: 0, comings: 0 }.serve(address).err();
    shared.leave(node, failure);
}

/// What is to be done next.
enum Work {
    /// Nothing any more.
    End,
    /// The oldest or newest offsets of these are to be found.
    Find(Vec<(Asked, Arc<Slot>)>),
    /// Whether these logs still hold what was read of them, under the epochs asked for and up to these offsets.
    Check(Vec<(Asked, Arc<Slot>)>, Vec<i64>),
    /// These are to be fetched; how long the broker may wait, ms.
    Fetch(Vec<(Asked, Arc<Slot>)>, i32),
}

struct Session<'a> {
    shared: &'a Arc<Shared>,
    node: i32,
    turns: Turns,
    /// Answers without messages in a row.
    quiet: u32,
    /// How many readers had come when last looked at.
    comings: u64,
}

/// Whose turn it is. An answer has room for some partitions, and what does not fit is left out wherever it stands, so who got
/// something goes behind who got nothing, as in Kafka's own client.
#[derive(Default)]
struct Turns {
    /// How many answers had something.
    answers: u64,
    /// The number of the answer that last had something for a partition.
    given: BTreeMap<Partition, u64>,
}

impl Turns {
    /// An answer had something for these.
    fn answered(&mut self, partitions: impl IntoIterator<Item = Partition>) {
        self.answers += 1;
        self.given.extend(partitions.into_iter().map(|partition| (partition, self.answers)));
    }

    /// Forgets those that are not asked for here any more.
    fn retain(&mut self, led: impl Fn(&Partition) -> bool) {
        self.given.retain(|partition, _| led(partition));
    }

    /// Puts a list into the order in which it is to be asked for.
    fn order<T>(&self, wanted: &mut [(Asked, T)]) {
        // Those that never got anything come first. Equals stay as they are.
        wanted.sort_by_cached_key(|(asked, _)| self.given.get(&(asked.topic.clone(), asked.partition)).copied());
    }
}

impl Session<'_> {
    fn serve(&mut self, address: &str) -> Result<(), String> {
        let settings = &self.shared.settings;
        let patience = settings.patience + Duration::from_millis(settings.extent.wait_ms.max(0) as u64);
        let mut link = Link::connect(address, &self.shared.access, patience)?;
        {
            let mut state = self.shared.state();
            if state.stopped {
                return Ok(());
            }
            state.nodes.entry(self.node).or_default().socket = link.handle();
        }
        if let Some(lacking) = protocol::missing(&mut link, &settings.client)? {
            self.give_up(&lacking);
            return Ok(());
        }
        loop {
            match self.work() {
                Work::End => return Ok(()),
                Work::Find(wanted) => self.find(&mut link, wanted)?,
                Work::Check(wanted, read) => self.check(&mut link, wanted, &read)?,
                Work::Fetch(wanted, wait_ms) => self.fetch(&mut link, wanted, wait_ms)?,
            }
            self.shared.outage.alive();
            if let Some(node) = self.shared.state().nodes.get_mut(&self.node) {
                node.failures = 0;
            }
        }
    }

    /// All partitions of this broker are somebody else's.
    fn give_up(&self, why: &str) {
        let mut slots = Vec::new();
        for assigned in self.shared.state().partitions.values_mut().filter(|a| a.leader == Some(self.node) && !a.over) {
            assigned.over = true;
            slots.push(assigned.slot.clone());
        }
        for slot in slots {
            slot.put(Event::Unspoken(why.to_string()));
        }
    }

    /// Waits until there is something to do.
    fn work(&mut self) -> Work {
        let mut state = self.shared.state();
        loop {
            if state.stopped {
                return Work::End;
            }
            let now = Instant::now();
            let (mut find, mut fetch, mut check, mut read) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let (mut any, mut full, mut until) = (false, false, None::<Instant>);
            for ((topic, partition), assigned) in &state.partitions {
                if assigned.leader != Some(self.node) || assigned.over {
                    continue;
                }
                any = true;
                let asked = || Asked { topic: topic.clone(), partition: *partition, epoch: assigned.epoch, offset: assigned.next };
                if assigned.again > now {
                    until = Some(until.map_or(assigned.again, |other| other.min(assigned.again)));
                } else if assigned.next < 0 {
                    find.push((asked(), assigned.slot.clone()));
                } else if assigned.doubtful {
                    check.push((Asked { offset: i64::from(assigned.read_epoch), ..asked() }, assigned.slot.clone()));
                    read.push(assigned.next);
                } else if assigned.slot.has_room(&self.shared.settings.room) {
                    fetch.push((asked(), assigned.slot.clone()));
                } else {
                    full = true;
                }
            }
            if !any {
                return Work::End;
            }
            if !find.is_empty() {
                return Work::Find(find);
            }
            if !check.is_empty() {
                return Work::Check(check, read);
            }
            if !fetch.is_empty() {
                if std::mem::replace(&mut self.comings, state.comings) != state.comings {
                    self.quiet = 0;
                }
                let most = self.shared.settings.extent.wait_ms;
                let soon = if full || until.is_some() { SHORT_WAIT_MS } else { SHORT_WAIT_MS << self.quiet.min(16) };
                let node = self.node;
                self.turns.retain(|partition| state.partitions.get(partition).is_some_and(|a| a.leader == Some(node)));
                self.turns.order(&mut fetch);
                return Work::Fetch(fetch, soon.min(most));
            }
            state = self.shared.wait(state, until);
        }
    }

    fn find(&self, link: &mut Link, wanted: Vec<(Asked, Arc<Slot>)>) -> Result<(), String> {
        let settings = &self.shared.settings;
        let asked: Vec<Asked> = wanted.iter().map(|(asked, _)| asked.clone()).collect();
        let found = protocol::offsets(link, &settings.client, settings.extent.committed, &asked)?;
        for (topic, partition, code, offset) in found {
            let Some((asked, slot)) = wanted.iter().find(|(a, _)| a.partition == partition && a.topic == topic) else { continue };
            if code != code::NONE {
                self.shared.trouble(slot, code);
                continue;
            }
            let offset = offset.max(0);
            let begins = self.shared.state().of(slot).filter(|a| a.next == asked.offset).map(|a| a.next = offset);
            if begins.is_some() {
                // In front of all messages, which nobody but this thread fetches.
                slot.put(Event::Begins(offset));
            }
        }
        Ok(())
    }

    /// A log whose leader changed must not have ended below what was read of it, before the new leader wrote on.
    fn check(&self, link: &mut Link, wanted: Vec<(Asked, Arc<Slot>)>, read: &[i64]) -> Result<(), String> {
        let asked: Vec<Asked> = wanted.iter().map(|(asked, _)| asked.clone()).collect();
        for (topic, partition, code, end) in protocol::epoch_ends(link, &self.shared.settings.client, &asked)? {
            let Some(index) = asked.iter().position(|a| a.partition == partition && a.topic == topic) else { continue };
            let slot = &wanted[index].1;
            if code != code::NONE {
                self.shared.trouble(slot, code);
            } else if (0..read[index]).contains(&end) {
                self.shared.trouble(slot, code::OFFSET_OUT_OF_RANGE);
            } else if let Some(assigned) = self.shared.state().of(slot) {
                assigned.doubtful = false;
            }
        }
        Ok(())
    }

    fn fetch(&mut self, link: &mut Link, wanted: Vec<(Asked, Arc<Slot>)>, wait_ms: i32) -> Result<(), String> {
        let settings = &self.shared.settings;
        let (asked, slots): (Vec<Asked>, Vec<Arc<Slot>>) = wanted.into_iter().unzip();
        let places: BTreeMap<(&str, i32), usize> = asked.iter().enumerate().map(|(i, a)| ((a.topic.as_str(), a.partition), i)).collect();
        let extent = Extent { wait_ms, ..settings.extent };
        let answer = protocol::fetch(link, &settings.client, &extent, &asked)?;
        let (mut given, mut ends) = (Vec::new(), Vec::new());
        protocol::fetched(answer, extent.committed, |answer, topic, front: Front| {
            let mut buffer = Vec::new();
            if front.bytes > 0 {
                buffer = self.shared.buffer(front.bytes);
                answer.bytes(front.bytes, &mut buffer)?;
            }
            let Some(index) = places.get(&(topic, front.partition)) else {
                return Err(format!("{}: an answer about {topic}:{}, which was not asked for", answer.place(), front.partition));
            };
            if front.bytes > 0 {
                given.push(*index);
            }
            let (from, slot) = (asked[*index].offset, &slots[*index]);
            if front.code != code::NONE {
                self.shared.trouble(slot, front.code);
            } else if front.bytes > 0 {
                self.shared.deliver(slot, Piece { bytes: buffer, from, aborted: front.aborted });
            } else if settings.ends {
                ends.push((*index, front.end));
            }
            Ok(())
        })?;
        if !given.is_empty() {
            self.turns.answered(given.into_iter().map(|index| (asked[index].topic.clone(), asked[index].partition)));
            self.quiet = 0;
            return Ok(());
        }
        self.quiet = self.quiet.saturating_add(1);
        // Nobody had anything, so that nothing was left out for want of room in the answer.
        for (index, end) in ends {
            self.shared.ends(&slots[index], asked[index].offset, end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(partition: i32, bytes: usize) -> (Asked, usize) {
        (Asked { topic: "t".to_string(), partition, epoch: 0, offset: 0 }, bytes)
    }

    /// Those of a request that an answer of ten bytes has something of, by the bytes of their next batch: the first in any case.
    fn answered(wanted: &[(Asked, usize)]) -> Vec<i32> {
        let (mut room, mut given) = (10usize, Vec::new());
        for (asked, bytes) in wanted.iter().filter(|(_, bytes)| *bytes > 0) {
            if given.is_empty() || *bytes <= room {
                room = room.saturating_sub(*bytes);
                given.push(asked.partition);
            }
        }
        given
    }

    /// How often each of the partitions gets something in twelve answers, by the bytes of its batches.
    #[track_caller]
    fn check<const N: usize>(batches: [usize; N], expect: [usize; N]) {
        let (mut turns, mut all) = (Turns::default(), Vec::new());
        for _ in 0..12 {
            let mut wanted: Vec<_> = (0..).zip(batches).map(|(partition, bytes)| asked(partition, bytes)).collect();
            turns.order(&mut wanted);
            let given = answered(&wanted);
            turns.answered(given.iter().map(|partition| ("t".to_string(), *partition)));
            all.extend(given);
        }
        let times: Vec<usize> = (0..).take(N).map(|partition: i32| all.iter().filter(|given| **given == partition).count()).collect();
        assert_eq!(times, expect, "{batches:?}");
    }

    /// Requests began behind the last partition that had got something: one in the midst whose batch never fitted beside the others'
    /// got nothing for ever.
    #[test]
    fn a_batch_that_did_not_fit_comes_first() {
        check([4, 8, 4], [6, 6, 6]);
        check([4, 8, 4, 0], [6, 6, 6, 0]);
        check([20, 4], [6, 6]);
    }

    /// While requests began one further each time, the same ones were in most answers.
    #[test]
    fn many_partitions_take_turns() {
        check([6; 4], [3; 4]);
        check([5; 6], [4; 6]);
        check([1; 3], [12; 3]);
    }

    #[test]
    fn a_partition_that_others_lead_is_forgotten() {
        let mut turns = Turns::default();
        turns.answered([("t".to_string(), 0), ("t".to_string(), 1)]);
        turns.retain(|(_, partition)| *partition == 1);
        let mut wanted = [asked(1, 1), asked(0, 1)];
        turns.order(&mut wanted);
        assert_eq!(wanted.map(|(asked, _)| asked.partition), [0, 1]);
        assert_eq!(turns.given.len(), 1);
    }
}
