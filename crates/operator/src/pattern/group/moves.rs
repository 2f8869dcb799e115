//! Groups over rows: how they are made, moved, ended and made attempts again.

use std::collections::VecDeque;

use super::{Done, Group, Grouping, Groups, Member, merge};
use crate::OperatorError;
use crate::pattern::chain::NONE;
use crate::pattern::output::Emitter;
use crate::pattern::run::{Attempt, Found, Horizon, Key, Machine, NEVER, Thread, ahead};

impl Machine {
    /// Whether attempts with these threads go on alike, whatever they took.
    fn moves_together(&self, threads: &[Thread]) -> bool {
        let state = |t: &Thread| t.state as usize;
        match threads {
            [] => false,
            // From several threads, rows may lead to one state that is not pure: which of them go on is then told by registers.
            [one] if self.grouping.plain[state(one)] && one.link != NONE => true,
            all => all.iter().all(|t| self.pure[state(t)] && !self.automaton.is_start(t.state)),
        }
    }

    /// As [`Machine::advance`] looks at rows, for a key that has groups: matches come in order of their first rows.
    pub(in crate::pattern) fn advance_groups(&mut self, key: &mut Key, horizon: Horizon, out: &mut Emitter) -> Result<(), OperatorError> {
        self.run_groups(key, horizon)?;
        for _ in 0..key.attempts.len() {
            let mut attempt = key.attempts.pop_front().expect("as many as were counted");
            if !self.run(key, &mut attempt, horizon)? {
                key.attempts.push_back(attempt);
            } else if let Some(found) = attempt.found.take() {
                self.grouping.done.push(Done { attempt, found, joint: None });
            } else {
                self.spare.push(attempt.threads);
            }
        }
        self.put_out(key, out)
    }

    /// As [`Machine::resume`], for groups. What is decided stays, as an attempt alone.
    pub(in crate::pattern) fn resume_groups(&mut self, key: &mut Key) -> Result<(), OperatorError> {
        self.run_groups(key, Horizon::OPEN)?;
        let mut decided = VecDeque::new();
        for Done { mut attempt, found, joint } in self.take_done(key) {
            let mut before = std::mem::take(&mut attempt.threads);
            let own = match joint {
                Some(joint) => {
                    let link = self.own_chain(found.link, joint, &before);
                    self.chains.release(found.link);
                    Found { link, ..found }
                }
                None => found,
            };
            self.replace(&mut attempt.found, own);
            self.clear(&mut before);
            attempt.threads = before;
            decided.push_back(attempt);
        }
        merge(&mut key.attempts, &mut decided, |a| a.start);
        Ok(())
    }

    /// Lets groups look at rows. Those that must not stay one are dissolved: their attempts look at the rest of the rows alone.
    fn run_groups(&mut self, key: &mut Key, horizon: Horizon) -> Result<(), OperatorError> {
        if let Some(mut groups) = key.groups.take() {
            for group in &mut groups.list {
                self.run_group(key, group, horizon)?;
            }
            key.groups = Some(groups);
        }
        Ok(())
    }

    /// As [`Machine::run`], for all members of a group.
    fn run_group(&mut self, key: &mut Key, group: &mut Group, horizon: Horizon) -> Result<(), OperatorError> {
        let limit = self.limit(key, horizon);
        while !group.members.is_empty() {
            let Some(place) = key.rows.place(group.at) else {
                let at_end = group.threads.iter().find(|t| self.automaton.states[t.state as usize].accepts_at_end).copied();
                if horizon.ended {
                    if let Some(best) = at_end {
                        self.chains.hold(best.link);
                        self.replace(&mut group.found, Found { link: best.link, last: group.at.wrapping_sub(1), empty: false });
                        group.found_before = group.next_epoch();
                    }
                    self.finish_all(group);
                } else if at_end.is_none() {
                    self.expire(group, horizon.not_before);
                }
                return Ok(());
            };
            let time = self.rows.times[place as usize];
            self.expire(group, time);
            if group.members.is_empty() || ahead(limit, group.at) <= 0 {
                return Ok(());
            }
            let threads = std::mem::take(&mut group.threads);
            group.threads = self.step(key, threads, &mut group.found, group.at, place)?;
            if group.found.is_some_and(|f| f.last == group.at) {
                group.found_before = group.next_epoch();
            }
            group.at = group.at.wrapping_add(1);
            if group.threads.len() > self.bounds.partial_matches_max {
                self.at_bound(&group.threads, group.members.len() as u64)?;
                self.finish_all(group);
            } else if group.threads.is_empty() {
                self.finish_all(group);
            } else if !self.moves_together(&group.threads) {
                self.dissolve(key, group);
            }
        }
        Ok(())
    }

    /// Ends the members that a row of time `time` (ms) is too late for.
    fn expire(&mut self, group: &mut Group, time: i64) {
        let Some(within) = self.within_ms else { return };
        while group.members.front().is_some_and(|m| time.saturating_sub(m.attempt.start_ms) >= within) {
            self.finish_oldest(group);
        }
    }

    fn finish_all(&mut self, group: &mut Group) {
        while !group.members.is_empty() {
            self.finish_oldest(group);
        }
    }

    /// Ends the oldest member of a group; if it has found a match, it is done.
    fn finish_oldest(&mut self, group: &mut Group) {
        let member = group.members.pop_front().expect("there is a member");
        group.leaves(&member);
        let Member { mut attempt, epoch, joint } = member;
        if let Some(found) = group.found
            && group.has_found_for(epoch)
        {
            // What the attempt took before it joined is still needed.
            self.chains.hold(found.link);
            self.grouping.done.push(Done { attempt, found, joint: Some(joint) });
            return;
        }
        self.clear(&mut attempt.threads);
        match attempt.found.take() {
            Some(found) => self.grouping.done.push(Done { attempt, found, joint: None }),
            None => self.spare.push(attempt.threads),
        }
    }

    /// What is done, in order of first rows.
    fn take_done(&mut self, key: &Key) -> Vec<Done> {
        let mut done = std::mem::take(&mut self.grouping.done);
        let base = key.rows.base;
        let order = |d: &Done| d.attempt.start.wrapping_sub(base);
        if !done.is_sorted_by_key(order) {
            done.sort_unstable_by_key(order);
        }
        done
    }

    /// Puts out the matches that are done.
    fn put_out(&mut self, key: &mut Key, out: &mut Emitter) -> Result<(), OperatorError> {
        let mut done = self.take_done(key);
        for Done { mut attempt, found, joint } in done.drain(..) {
            key.matched(found);
            let own = |number: u32| joint.and_then(|first| attempt.threads.get(number.wrapping_sub(first) as usize)).map(|t| t.link);
            let taken = self.chains.joined(found.link, own);
            out.matched(&key.rows, &self.rows, taken, attempt.start, found, key.matches)?;
            self.chains.release(found.link);
            if let Some(before) = attempt.found.take() {
                self.chains.release(before.link);
            }
            self.clear(&mut attempt.threads);
            self.spare.push(attempt.threads);
        }
        self.grouping.done = done;
        Ok(())
    }

    /// Gives the oldest undecided attempt up, at the bound.
    pub(in crate::pattern) fn shed(&mut self, key: &mut Key, out: &mut Emitter) -> Result<(), OperatorError> {
        let oldest = key.oldest().map(|(start, _)| start);
        let groups = key.groups.as_mut().map(|groups| &mut groups.list);
        let group = groups.and_then(|list| list.iter_mut().find(|g| g.members.front().map(|m| m.attempt.start) == oldest));
        if let Some(group) = group {
            self.at_bound(&group.threads, 1)?;
            self.finish_oldest(group);
            return self.put_out(key, out);
        }
        let mut attempt = key.attempts.pop_front().expect("more than the bound");
        self.give_up(&mut attempt)?;
        self.conclude(key, attempt, out)
    }

    /// Makes groups of attempts that have come to the same, if a key has many. What is done must have been put out.
    pub(in crate::pattern) fn gather_if_many(&mut self, key: &mut Key) {
        if key.groups.is_none() && (!self.grouping.on || key.attempts.len() < self.grouping.attempts_min) {
            return;
        }
        let some = key.attempts.iter().any(|a| self.moves_together(&a.threads));
        if key.groups.is_none() && !some {
            return;
        }
        let mut groups = key.groups.take().unwrap_or_default();
        self.tidy(&mut groups.list);
        self.unite(&mut groups.list);
        if some {
            for _ in 0..key.attempts.len() {
                let attempt = key.attempts.pop_front().expect("as many as were counted");
                if let Some(alone) = self.join_one(&mut groups.list, attempt) {
                    key.attempts.push_back(alone);
                }
            }
        }
        key.groups = (!groups.list.is_empty()).then_some(groups);
    }

    /// Ends groups without members.
    fn tidy(&mut self, groups: &mut Vec<Group>) {
        let mut at = 0;
        while at < groups.len() {
            if groups[at].members.is_empty() {
                let group = groups.swap_remove(at);
                self.end(group);
            } else {
                groups[at].tidy(&mut self.chains);
                at += 1;
            }
        }
    }

    /// Makes groups that have come to the same one; the smaller joins the larger.
    fn unite(&mut self, groups: &mut Vec<Group>) {
        let mut at = 0;
        while at < groups.len() {
            let mut other = at + 1;
            while other < groups.len() {
                if !groups[at].is_like(groups[other].at, &groups[other].threads) {
                    other += 1;
                    continue;
                }
                let mut smaller = groups.swap_remove(other);
                let larger = &mut groups[at];
                if smaller.members.len() > larger.members.len() {
                    std::mem::swap(&mut smaller, larger);
                }
                self.absorb(larger, smaller);
            }
            at += 1;
        }
    }

    fn absorb(&mut self, into: &mut Group, mut from: Group) {
        let (epoch, joint) = into.open(&mut self.chains);
        let mut more = std::mem::take(&mut self.grouping.joining);
        while let Some(member) = from.members.pop_front() {
            let attempt = self.alone(&mut from, member);
            into.joins(&attempt);
            more.push_back(Member { attempt, epoch, joint });
        }
        merge(&mut into.members, &mut more, |m| m.attempt.start);
        self.grouping.joining = more;
        self.end(from);
    }

    /// Puts an attempt into the group that is like it, or a new one; gives it back if it must stay alone.
    fn join_one(&mut self, groups: &mut Vec<Group>, attempt: Attempt) -> Option<Attempt> {
        if !self.moves_together(&attempt.threads) {
            return Some(attempt);
        }
        let group = match groups.iter().position(|g| g.is_like(attempt.at, &attempt.threads)) {
            Some(found) => &mut groups[found],
            None if groups.len() < Grouping::GROUPS_MAX => {
                let mut group = self.grouping.spare.pop().unwrap_or_default();
                group.at = attempt.at;
                group.threads.extend(attempt.threads.iter().map(|t| Thread { state: t.state, link: NONE, due: NEVER }));
                groups.push(group);
                groups.last_mut().expect("it was just added")
            }
            None => return Some(attempt),
        };
        let (epoch, joint) = group.open(&mut self.chains);
        group.joins(&attempt);
        let start = attempt.start;
        let member = Member { attempt, epoch, joint };
        let before = |m: &Member| ahead(start, m.attempt.start) > 0;
        if group.members.back().is_none_or(before) {
            group.members.push_back(member);
        } else {
            let at = group.members.partition_point(before);
            group.members.insert(at, member);
        }
        None
    }

    /// Lets the members of a group go on alone.
    fn dissolve(&mut self, key: &mut Key, group: &mut Group) {
        let mut attempts = VecDeque::with_capacity(group.members.len());
        while let Some(member) = group.members.pop_front() {
            attempts.push_back(self.alone(group, member));
        }
        merge(&mut key.attempts, &mut attempts, |a| a.start);
    }

    /// A former member of a group as an attempt that has its threads for itself.
    fn alone(&mut self, group: &mut Group, member: Member) -> Attempt {
        group.leaves(&member);
        let Member { mut attempt, epoch, joint } = member;
        let mut before = std::mem::replace(&mut attempt.threads, self.spare.pop().unwrap_or_default());
        for thread in &group.threads {
            let link = self.own_chain(thread.link, joint, &before);
            attempt.threads.push(Thread { state: thread.state, link, due: NEVER });
        }
        if let Some(found) = group.found
            && group.has_found_for(epoch)
        {
            let link = self.own_chain(found.link, joint, &before);
            self.replace(&mut attempt.found, Found { link, ..found });
        }
        self.clear(&mut before);
        self.spare.push(before);
        attempt.at = group.at;
        attempt
    }

    /// A chain without joints, held once, of what a member took up to `link`; `before` are its threads as it joined.
    fn own_chain(&mut self, link: u32, joint: u32, before: &[Thread]) -> u32 {
        let mut taken = std::mem::take(&mut self.grouping.taken);
        let own = |number: u32| before.get(number.wrapping_sub(joint) as usize).map(|t| t.link);
        let mut chain = self.chains.up_to_joint(link, own, &mut taken);
        self.chains.hold(chain);
        if !taken.is_empty() {
            // The rows that a group takes change no register that is looked at behind.
            if chain == NONE {
                self.registers.initial(&mut self.words);
            } else {
                self.words.clear();
                self.words.extend_from_slice(self.chains.registers(chain));
            }
        }
        while let Some(taken) = taken.pop() {
            let next = self.chains.add(chain, taken, &self.words);
            self.chains.release(chain);
            chain = next;
        }
        self.grouping.taken = taken;
        chain
    }

    /// Ends a group that has no members.
    fn end(&mut self, mut group: Group) {
        assert!(group.members.is_empty(), "every member of a group is put out, given up or moved on alone");
        self.clear(&mut group.threads);
        if let Some(found) = group.found.take() {
            self.chains.release(found.link);
        }
        group.joints.drain(..).for_each(|joint| self.chains.release(joint));
        group.epochs.clear();
        (group.found_before, group.first_epoch, group.next_joint) = (0, 0, 0);
        if self.grouping.spare.len() < Grouping::GROUPS_MAX {
            self.grouping.spare.push(group);
        }
    }

    /// The part of groups in [`Machine::holds_back`]; `time` gives that of a row.
    pub(in crate::pattern) fn groups_hold_back(&self, groups: &Groups, time: &impl Fn(u32) -> i64, all_rows: bool) -> i64 {
        let mut least = i64::MAX;
        for group in &groups.list {
            least = least.min(time(group.at));
            if group.threads.iter().any(|t| self.automaton.states[t.state as usize].accepts_at_end) {
                least = least.min(time(group.at.wrapping_sub(1)));
            }
            if all_rows {
                least = least.min(group.members.front().map_or(i64::MAX, |m| m.attempt.start_ms));
                continue;
            }
            // If there is one, members of the first epoch have it.
            least = least.min(group.found.map_or(i64::MAX, |f| time(f.last)));
            if group.founds > 0 {
                let before = group.members.iter().filter(|m| !group.has_found_for(m.epoch)).filter_map(|m| m.attempt.found);
                least = before.map(|f| time(f.last)).fold(least, i64::min);
            }
        }
        least
    }
}
