//! Databases with one writer at a time (SQLite): who in this process writes to which.
//!
//! A transaction that is kept open between checkpoints would keep others of the same file waiting, and
//! their checkpoint with them. So a writer keeps one open only while it is the only one; when another
//! comes, the open one is rolled back and its rows are written from their file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::slot::Slot;

static ALL: Mutex<Vec<(String, Weak<Users>)>> = Mutex::new(Vec::new());

/// The writers of a database.
struct Users {
    count: AtomicUsize,
    slots: Mutex<Vec<Weak<Slot>>>,
}

/// A writer's presence; ends with its drop.
pub(super) struct Turn(Arc<Users>);

impl Turn {
    /// A writer of a database ([`Driver::identity`](crate::driver::Driver::identity)). Transactions that others keep
    /// open are rolled back.
    pub fn of(database: &str) -> Self {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, users)| users.strong_count() > 0);
        let found = all.iter().find(|(name, _)| name == database).and_then(|(_, users)| users.upgrade());
        let users = found.unwrap_or_else(|| {
            let users = Arc::new(Users { count: AtomicUsize::new(0), slots: Mutex::default() });
            all.push((database.to_string(), Arc::downgrade(&users)));
            users
        });
        drop(all);
        users.count.fetch_add(1, Ordering::SeqCst);
        let slots: Vec<Arc<Slot>> = users.slots.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        slots.iter().for_each(|slot| slot.give_way());
        Turn(users)
    }

    /// Whether nobody else in this process writes to the database.
    pub fn alone(&self) -> bool {
        self.0.count.load(Ordering::SeqCst) == 1
    }

    /// This one may keep transactions open.
    pub fn add(&self, slot: &Arc<Slot>) {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(slot));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}
