//! Attempts that are moved together.
//!
//! Where what comes next depends on the row alone, and not on what was matched before, attempts whose threads are in
//! the same states stay alike from there on, whichever row they began at. A [`Group`] has such threads once: a row
//! moves them at the cost of one attempt, and what they take is one chain for all. Its members are attempts as they
//! were when they joined, in order of their first rows; what each took before is linked to the chain by a joint
//! ([`super::chain`]), and their matches are put together only when they are put out. `WITHIN` ends members from the
//! front, since they are in order of time.
//!
//! A group that comes to a condition that looks back is dissolved into its members, and groups that have come to the same
//! become one. Nothing of this is seen in the results, in the order in which they come, in the bound or in a snapshot.
//! Here stands what groups are; [`moves`] moves them.

mod moves;

use std::collections::VecDeque;

use super::chain::{Chains, Taken};
use super::run::{Attempt, Found, Key, Thread, ahead};

/// Attempts of one partition that have the same threads.
#[derive(Default)]
pub(super) struct Group {
    /// The next row to be looked at.
    at: u32,
    /// Their links hold what was taken since the members joined.
    threads: Vec<Thread>,
    /// What members of epochs before `found_before` have found; others may have found something before they joined.
    found: Option<Found>,
    found_before: u32,
    /// In order of their first rows.
    members: VecDeque<Member>,
    /// How many of them had found something before they joined.
    founds: usize,
    /// Members of one epoch joined when the threads had taken the same.
    epochs: VecDeque<Epoch>,
    /// The number of the first of them.
    first_epoch: u32,
    /// The joints of the epochs, one for each thread that there was, each held.
    joints: VecDeque<u32>,
    /// Joints are numbered, those of one epoch in order of the threads.
    next_joint: u32,
}

/// An attempt in a group.
struct Member {
    /// As it was when it joined: what its threads link to stands before the joints of its epoch.
    attempt: Attempt,
    epoch: u32,
    /// The number of the epoch's first joint.
    joint: u32,
}

struct Epoch {
    members: u32,
    joints: u32,
}

/// The groups of a partition; none is like another.
#[derive(Default)]
pub(super) struct Groups {
    list: Vec<Group>,
}

/// A decided attempt with a match.
struct Done {
    attempt: Attempt,
    found: Found,
    /// If the match was found by a group: the number of the attempt's first joint.
    joint: Option<u32>,
}

/// What moving attempts together needs to know and to have at hand.
pub(super) struct Grouping {
    /// Whether there is a state in which attempts may be moved together.
    on: bool,
    /// So many undecided attempts must a key have before groups are formed.
    pub attempts_min: usize,
    /// The states whose conditions do not look back, and whose rows change no register: a thread in it can be moved with
    /// those of other attempts, even if conditions behind do look back.
    plain: Vec<bool>,
    done: Vec<Done>,
    joining: VecDeque<Member>,
    taken: Vec<Taken>,
    spare: Vec<Group>,
}

impl Grouping {
    /// A few attempts are moved faster one by one.
    const ATTEMPTS_MIN: usize = 8;
    /// A key has at most so many groups: each row looks at all of them.
    const GROUPS_MAX: usize = 16;

    pub fn new(on: bool, plain: Vec<bool>) -> Self {
        Grouping {
            on,
            attempts_min: Self::ATTEMPTS_MIN,
            plain,
            done: Vec::new(),
            joining: VecDeque::new(),
            taken: Vec::new(),
            spare: Vec::new(),
        }
    }
}

/// Puts `more` into `into`, both in order of first rows.
fn merge<T>(into: &mut VecDeque<T>, more: &mut VecDeque<T>, start: impl Fn(&T) -> u32) {
    let Some(first) = more.front().map(&start) else { return };
    let at = into.partition_point(|t| ahead(first, start(t)) > 0);
    let mut rest = into.split_off(at);
    while let (Some(one), Some(other)) = (rest.front(), more.front()) {
        let next = if ahead(start(one), start(other)) < 0 { rest.pop_front() } else { more.pop_front() };
        into.extend(next);
    }
    into.append(&mut rest);
    into.append(more);
}

impl Group {
    fn is_like(&self, at: u32, threads: &[Thread]) -> bool {
        self.at == at && self.threads.len() == threads.len() && self.threads.iter().zip(threads).all(|(a, b)| a.state == b.state)
    }

    fn next_epoch(&self) -> u32 {
        self.first_epoch.wrapping_add(self.epochs.len() as u32)
    }

    /// Whether what the group has found is better than what members of `epoch` found before.
    fn has_found_for(&self, epoch: u32) -> bool {
        self.found.is_some() && ahead(self.found_before, epoch) > 0
    }

    /// Whether nothing was taken or found since the newest epoch began.
    fn is_fresh(&self) -> bool {
        let Some(newest) = self.epochs.back() else { return false };
        let joints = newest.joints as usize;
        joints == self.threads.len()
            && !self.has_found_for(self.next_epoch().wrapping_sub(1))
            && self.threads.iter().zip(self.joints.range(self.joints.len() - joints..)).all(|(t, joint)| t.link == *joint)
    }

    /// Begins an epoch unless the newest is fresh; gives its number and that of its first joint.
    fn open(&mut self, chains: &mut Chains) -> (u32, u32) {
        if !self.is_fresh() {
            for thread in &mut self.threads {
                let joint = chains.joint(thread.link, self.next_joint);
                chains.release(thread.link);
                // By the thread, and by the epoch.
                chains.hold(joint);
                thread.link = joint;
                self.joints.push_back(joint);
                self.next_joint = self.next_joint.wrapping_add(1);
            }
            self.epochs.push_back(Epoch { members: 0, joints: self.threads.len() as u32 });
        }
        (self.next_epoch().wrapping_sub(1), self.next_joint.wrapping_sub(self.threads.len() as u32))
    }

    /// Counts an attempt that joins in the newest epoch.
    fn joins(&mut self, attempt: &Attempt) {
        self.epochs.back_mut().expect("an epoch was opened").members += 1;
        self.founds += usize::from(attempt.found.is_some());
    }

    /// Counts a member that leaves.
    fn leaves(&mut self, member: &Member) {
        self.epochs[member.epoch.wrapping_sub(self.first_epoch) as usize].members -= 1;
        self.founds -= usize::from(member.attempt.found.is_some());
    }

    /// Forgets what only members that are gone had taken. There must be members.
    fn tidy(&mut self, chains: &mut Chains) {
        let before = self.first_epoch;
        while self.epochs.front().is_some_and(|e| e.members == 0) {
            let joints = self.epochs.pop_front().map_or(0, |e| e.joints as usize);
            self.joints.drain(..joints).for_each(|joint| chains.release(joint));
            self.first_epoch = self.first_epoch.wrapping_add(1);
        }
        if self.first_epoch == before {
            return;
        }
        if !self.has_found_for(self.first_epoch)
            && let Some(found) = self.found.take()
        {
            chains.release(found.link);
        }
        let joints = self.epochs.front().map_or(0, |e| e.joints as usize);
        self.joints.range(..joints).for_each(|joint| chains.cut(*joint));
    }
}

impl Groups {
    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let of = |group: &Group| {
            // An attempt's threads are as many as those of its group were.
            let links = group.members.len() * group.threads.len() * size_of::<Thread>() + group.joints.capacity() * 4;
            group.members.capacity() * size_of::<Member>() + group.epochs.capacity() * size_of::<Epoch>() + links
        };
        size_of::<Groups>() + self.list.capacity() * size_of::<Group>() + self.list.iter().map(of).sum::<usize>()
    }

    /// Partial matches of all members.
    pub fn partial_matches(&self) -> usize {
        self.list.iter().map(|g| g.members.len() * g.threads.len()).sum()
    }

    /// How many members each group has.
    #[cfg(test)]
    pub fn sizes(&self) -> Vec<usize> {
        self.list.iter().map(|g| g.members.len()).collect()
    }
}

impl Key {
    /// Undecided attempts, in no order.
    pub fn undecided(&self) -> impl Iterator<Item = &Attempt> {
        let together = self.groups.iter().flat_map(|groups| groups.list.iter()).flat_map(|g| g.members.iter());
        self.attempts.iter().chain(together.map(|m| &m.attempt))
    }

    /// How many attempts are undecided.
    pub fn waiting(&self) -> usize {
        let Some(groups) = &self.groups else { return self.attempts.len() };
        self.attempts.len() + groups.list.iter().map(|g| g.members.len()).sum::<usize>()
    }

    /// The first row of the oldest undecided attempt, and its time, ms.
    pub fn oldest(&self) -> Option<(u32, i64)> {
        let of = |a: &Attempt| (a.start, a.start_ms);
        let alone = self.attempts.front().map(of);
        let Some(groups) = &self.groups else { return alone };
        let together = groups.list.iter().filter_map(|g| g.members.front().map(|m| of(&m.attempt)));
        alone.into_iter().chain(together).reduce(|a, b| if ahead(b.0, a.0) < 0 { b } else { a })
    }
}
