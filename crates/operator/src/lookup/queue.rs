//! Keys that are yet to be asked, by partition: a partition with many of them, or whose calls are slow, does
//! not keep the others waiting, and none has more calls under way than it may. Not here: how many calls
//! there may be in all.

use std::collections::{HashMap, VecDeque};

/// What one call asks, kept until it is answered or given up.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The keys, as numbers of asks.
    pub asks: Vec<u32>,
    pub partition: u32,
    /// When it was first asked, ns; 0 before.
    pub begun_ns: u64,
    /// How often it was asked before.
    pub attempts: u32,
}

#[derive(Default)]
struct Lane {
    /// Questions to be asked again; they go first.
    again: VecDeque<Question>,
    asks: VecDeque<u32>,
    under_way: usize,
    /// It stands in the queue of those whose turn will come.
    listed: bool,
}

/// The keys that wait to be asked.
pub(super) struct Queue {
    /// The most calls that a partition may have under way.
    per_partition: usize,
    lanes: HashMap<u32, Lane>,
    turns: VecDeque<u32>,
    waiting: usize,
}

impl Queue {
    /// A queue of partitions of which each may have so many calls under way.
    pub fn new(per_partition: usize) -> Self {
        Queue { per_partition: per_partition.max(1), lanes: HashMap::new(), turns: VecDeque::new(), waiting: 0 }
    }

    /// How many keys wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether there is one that may be asked now, were there no other limit.
    pub fn is_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Puts keys of a partition at its end.
    pub fn push(&mut self, partition: u32, asks: &[u32]) {
        if asks.is_empty() {
            return;
        }
        self.lanes.entry(partition).or_default().asks.extend(asks);
        self.waiting += asks.len();
        self.list(partition);
    }

    /// Puts a question that was asked before in front.
    pub fn push_again(&mut self, question: Question) {
        let partition = question.partition;
        self.waiting += question.asks.len();
        self.lanes.entry(partition).or_default().again.push_back(question);
        self.list(partition);
    }

    /// The next question, of at most `keys_max` keys; from now on it is under way.
    pub fn next(&mut self, keys_max: usize) -> Option<Question> {
        let partition = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&partition).expect("listed partitions are there");
        lane.listed = false;
        let question = lane.again.pop_front().unwrap_or_else(|| {
            let keys = keys_max.min(lane.asks.len());
            Question { asks: lane.asks.drain(..keys).collect(), partition, begun_ns: 0, attempts: 0 }
        });
        lane.under_way += 1;
        self.waiting -= question.asks.len();
        self.list(partition);
        Some(question)
    }

    /// A call of the partition is no longer under way.
    pub fn ended(&mut self, partition: u32) {
        let lane = self.lanes.get_mut(&partition).expect("a partition with a call under way");
        lane.under_way -= 1;
        if lane.under_way == 0 && lane.asks.is_empty() && lane.again.is_empty() {
            self.lanes.remove(&partition);
        } else {
            self.list(partition);
        }
    }

    /// Lists a partition if it has something to ask and may.
    fn list(&mut self, partition: u32) {
        let lane = self.lanes.get_mut(&partition).expect("a partition that is known");
        if !lane.listed && lane.under_way < self.per_partition && !(lane.asks.is_empty() && lane.again.is_empty()) {
            lane.listed = true;
            self.turns.push_back(partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(queue: &mut Queue, keys_max: usize) -> Vec<(u32, Vec<u32>)> {
        std::iter::from_fn(|| queue.next(keys_max).map(|q| (q.partition, q.asks))).collect()
    }

    #[test]
    fn partitions_take_turns_and_keep_their_bound() {
        let mut queue = Queue::new(2);
        queue.push(7, &[1, 2, 3, 4]);
        queue.push(8, &[5]);
        assert_eq!(asked(&mut queue, 1), [(7, vec![1]), (8, vec![5]), (7, vec![2])]);
        assert_eq!((queue.waiting(), queue.is_ready()), (2, false));
        queue.ended(8);
        assert!(!queue.is_ready());
        queue.ended(7);
        let again = Question { asks: vec![1], partition: 7, begun_ns: 3, attempts: 1 };
        queue.push_again(again);
        assert_eq!(asked(&mut queue, 9), [(7, vec![1])]);
        queue.ended(7);
        assert_eq!(asked(&mut queue, 9), [(7, vec![3, 4])]);
        (0..2).for_each(|_| queue.ended(7));
        assert!(queue.lanes.is_empty() && queue.waiting() == 0);
    }
}
