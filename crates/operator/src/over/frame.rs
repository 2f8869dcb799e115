//! Which rows leave the frame before which row enters.

use std::collections::VecDeque;

use super::Frame;

/// A row in some frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub time: i64,
    /// Where its values lie in each aggregate's store; given again when the row is gone.
    pub id: u32,
    /// Its key.
    pub slot: u32,
}

/// What to do with a batch of rows, step by step: rows leave, rows enter, and then the rows that
/// entered are answered.
#[derive(Default)]
pub(super) struct Plan {
    /// Rows that leave: (id, slot).
    pub evicted: Vec<(u32, u32)>,
    /// For each row of the batch its id and its slot.
    pub entered: Vec<(u32, u32)>,
    /// Bounds of the steps: how many of `evicted` and of `entered` are done after each.
    pub steps: Vec<(u32, u32)>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.evicted.is_empty() && self.entered.is_empty()
    }
}

/// The rows in all frames.
pub(super) struct Frames {
    frame: Frame,
    /// RANGE: all live rows in order of time. One queue serves every key, since at time t a row
    /// older than t − range is out of every frame, whichever key the current row has.
    queue: VecDeque<Live>,
    /// ROWS: the live rows of each key.
    queues: Vec<VecDeque<Live>>,
    /// Live rows of each key.
    counts: Vec<u32>,
    free: Vec<u32>,
    given: u32,
    rows: usize,
}

impl Frames {
    pub fn new(frame: Frame) -> Self {
        Frames { frame, queue: VecDeque::new(), queues: Vec::new(), counts: Vec::new(), free: Vec::new(), given: 0, rows: 0 }
    }

    fn enter(&mut self) -> u32 {
        self.rows += 1;
        self.free.pop().unwrap_or_else(|| {
            self.given += 1;
            self.given - 1
        })
    }

    fn leave(&mut self, live: Live, plan: &mut Plan) {
        self.rows -= 1;
        self.counts[live.slot as usize] -= 1;
        self.free.push(live.id);
        plan.evicted.push((live.id, live.slot));
    }

    /// Plans a batch of rows, ascending by time; `slots_max` bounds the slots.
    pub fn plan(&mut self, times: &[i64], slots: &[u32], slots_max: usize) -> Plan {
        let mut plan = Plan { evicted: Vec::new(), entered: Vec::with_capacity(times.len()), steps: Vec::with_capacity(times.len()) };
        self.counts.resize(slots_max, 0);
        match self.frame {
            Frame::RangeMs(range) => {
                let mut row = 0;
                while row < times.len() {
                    let time = times[row];
                    self.expire_before(time.saturating_sub(range), &mut plan);
                    while row < times.len() && times[row] == time {
                        let live = Live { time, id: self.enter(), slot: slots[row] };
                        self.counts[live.slot as usize] += 1;
                        self.queue.push_back(live);
                        plan.entered.push((live.id, live.slot));
                        row += 1;
                    }
                    plan.steps.push((plan.evicted.len() as u32, row as u32));
                }
            }
            Frame::Rows(before) => {
                self.queues.resize_with(slots_max, VecDeque::new);
                for (row, (&time, &slot)) in times.iter().zip(slots).enumerate() {
                    if self.queues[slot as usize].len() as u64 > before {
                        let oldest = self.queues[slot as usize].pop_front().expect("longer than the frame");
                        self.leave(oldest, &mut plan);
                    }
                    let live = Live { time, id: self.enter(), slot };
                    self.counts[slot as usize] += 1;
                    self.queues[slot as usize].push_back(live);
                    plan.entered.push((live.id, slot));
                    plan.steps.push((plan.evicted.len() as u32, row as u32 + 1));
                }
            }
            Frame::Unbounded { .. } => unreachable!("unbounded frames keep no rows"),
        }
        plan
    }

    fn expire_before(&mut self, time: i64, plan: &mut Plan) {
        while let Some(oldest) = self.queue.front().copied().filter(|l| l.time < time) {
            self.queue.pop_front();
            self.leave(oldest, plan);
        }
    }

    /// Rows that no later row can see, once the watermark has come so far.
    pub fn expire(&mut self, watermark: i64) -> Plan {
        let mut plan = Plan::default();
        if let Frame::RangeMs(range) = self.frame {
            self.expire_before(watermark.saturating_add(1).saturating_sub(range), &mut plan);
        }
        plan
    }

    /// The keys that a plan left without rows.
    pub fn emptied(&self, plan: &Plan) -> Vec<u32> {
        let mut slots: Vec<u32> = plan.evicted.iter().map(|(_, slot)| *slot).filter(|s| self.counts[*s as usize] == 0).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// All live rows, those of a key in order.
    pub fn live(&self) -> Vec<Live> {
        self.queue.iter().chain(self.queues.iter().flatten()).copied().collect()
    }

    /// How many rows are live.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn memory(&self) -> usize {
        let live = size_of::<Live>();
        self.queue.capacity() * live
            + self.queues.iter().map(|q| q.capacity() * live + 32).sum::<usize>()
            + self.counts.capacity() * 4
            + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(frame: Frame, rows: &[(i64, u32)], expect: &str) {
        let mut frames = Frames::new(frame);
        let (times, slots): (Vec<i64>, Vec<u32>) = rows.iter().copied().unzip();
        let plan = frames.plan(&times, &slots, 4);
        let mut text = String::new();
        let (mut e, mut r) = (0, 0);
        for (evicted, entered) in &plan.steps {
            for (id, _) in &plan.evicted[e..*evicted as usize] {
                text += &format!("-{id}");
            }
            for (id, _) in &plan.entered[r..*entered as usize] {
                text += &format!("+{id}");
            }
            text.push(' ');
            (e, r) = (*evicted as usize, *entered as usize);
        }
        assert_eq!(text.trim(), expect);
    }

    #[test]
    fn frames_slide() {
        check(Frame::RangeMs(10), &[(0, 0), (5, 1), (10, 0), (11, 1), (11, 0), (30, 0)], "+0 +1 +2 -0+0+3 -1-2-0-3+3");
        check(Frame::Rows(1), &[(0, 0), (1, 0), (1, 1), (2, 0), (3, 1), (4, 1)], "+0 +1 +2 -0+0 +3 -2+2");
    }
}
