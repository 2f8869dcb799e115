//! The messages of quality 1 that were taken and are not acknowledged yet.
//!
//! After a break of the connection the broker gives them again, under the ids that they had. It cannot give such an id to
//! another message before it is acknowledged, so who comes with one is known; the checksum guards against brokers that
//! keep to this badly. An acknowledgement goes out only on the connection on which its message came last: before that, the
//! broker may not have the message under this id.

use std::collections::{HashMap, VecDeque};

/// A message that is to be acknowledged.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Its number in the order in which the job gets messages.
    number: u64,
    id: u16,
    checksum: u32,
}

/// What is to be acknowledged.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Came on this connection, in this order.
    current: VecDeque<Pending>,
    /// Came on an earlier one, and not yet again.
    earlier: HashMap<u16, Pending>,
}

impl Ledger {
    /// A connection has begun. If the broker has no session for it, it gives nothing again, and knows no ids.
    pub fn begin(&mut self, session_present: bool) {
        if session_present {
            self.earlier.extend(self.current.drain(..).map(|pending| (pending.id, pending)));
        } else {
            self.current.clear();
            self.earlier.clear();
        }
    }

    /// A message has come; whether it is one that was taken before. `again`: the broker says that it may be.
    pub fn is_known(&mut self, id: u16, again: bool, checksum: u32) -> bool {
        // Under the id of a message that does not come again stands another one: it is of no more use.
        let Some(known) = self.earlier.remove(&id) else { return false };
        let same = again && known.checksum == checksum;
        if same {
            self.current.push_back(known);
        }
        same
    }

    /// A message is taken that was not known.
    pub fn take(&mut self, number: u64, id: u16, checksum: u32) {
        self.current.push_back(Pending { number, id, checksum });
    }

    /// The messages up to this number are in a checkpoint: calls `each` with the ids that can be acknowledged, in the order
    /// in which their messages came, as the protocol wants it.
    pub fn settle(&mut self, committed: u64, mut each: impl FnMut(u16)) {
        while let Some(pending) = self.current.front().copied().filter(|pending| pending.number <= committed) {
            self.current.pop_front();
            each(pending.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn settled(ledger: &mut Ledger, committed: u64, expect: &[u16]) {
        let mut ids = Vec::new();
        ledger.settle(committed, |id| ids.push(id));
        assert_eq!(ids, expect);
    }

    fn three() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.begin(false);
        for (number, id) in [(1, 7), (2, 8), (3, 9)] {
            assert!(!ledger.is_known(id, false, u32::from(id)));
            ledger.take(number, id, u32::from(id));
        }
        ledger
    }

    #[test]
    fn what_a_checkpoint_holds_is_acknowledged_once_and_in_order() {
        let mut ledger = three();
        settled(&mut ledger, 0, &[]);
        settled(&mut ledger, 2, &[7, 8]);
        settled(&mut ledger, 2, &[]);
        settled(&mut ledger, 9, &[9]);
    }

    #[test]
    fn what_comes_again_is_known_and_then_acknowledged() {
        let mut ledger = three();
        ledger.begin(true);
        settled(&mut ledger, 3, &[]);
        assert!(ledger.is_known(7, true, 7));
        settled(&mut ledger, 3, &[7]);
        assert!(!ledger.is_known(7, false, 7), "acknowledged: it is another one");
    }

    #[test]
    fn another_message_under_an_id_is_taken() {
        let mut ledger = three();
        ledger.begin(true);
        assert!(!ledger.is_known(7, false, 7), "the broker says that it is new");
        assert!(!ledger.is_known(8, true, 1), "it reads otherwise");
        ledger.take(4, 7, 7);
        ledger.take(5, 8, 1);
        settled(&mut ledger, 9, &[7, 8]);
    }

    #[test]
    fn a_lost_session_gives_nothing_again() {
        let mut ledger = three();
        ledger.begin(false);
        settled(&mut ledger, 3, &[]);
        assert!(!ledger.is_known(8, true, 8));
    }
}
