//! Which partition a message goes to.

use crate::options::Partitioner;
use crate::producer::ANY_PARTITION;

/// Chooses partitions, one message after the other.
#[derive(Clone, Debug)]
pub enum Route {
    /// By the hash of the key; librdkafka does it.
    Hashed,
    /// Always the same.
    Fixed(i32),
    /// One after the other.
    Turns {
        /// The next.
        next: i32,
        /// How many there are.
        count: i32,
    },
}

impl Route {
    /// Of writer `shard`, to a topic of so many partitions.
    pub fn of(partitioner: Partitioner, shard: usize, partitions: usize) -> Self {
        let count = i32::try_from(partitions).unwrap_or(i32::MAX).max(1);
        let own = (shard % count as usize) as i32;
        match partitioner {
            Partitioner::Default => Route::Hashed,
            Partitioner::Fixed => Route::Fixed(own),
            // Writers begin apart, so that few messages of many writers spread, too.
            Partitioner::RoundRobin => Route::Turns { next: own, count },
        }
    }

    /// The partition of the next message.
    #[inline]
    pub fn next(&mut self) -> i32 {
        match self {
            Route::Hashed => ANY_PARTITION,
            Route::Fixed(partition) => *partition,
            Route::Turns { next, count } => {
                let partition = *next;
                *next = (partition + 1) % *count;
                partition
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_by_partitioner() {
        let check = |partitioner, shard, expect: [i32; 4]| {
            let mut route = Route::of(partitioner, shard, 3);
            assert_eq!([(); 4].map(|()| route.next()), expect);
        };
        check(Partitioner::Default, 1, [-1; 4]);
        check(Partitioner::Fixed, 4, [1; 4]);
        check(Partitioner::RoundRobin, 2, [2, 0, 1, 2]);
    }
}
