//! Keyed state: the table of keys, stable hashes, and checkpoints on disk.
//!
//! State is columnar: an operator keeps, for each key, a *slot*, and its accumulators are columns
//! indexed by slot. A snapshot is a handful of [`StateTable`]s, so that a checkpoint is written and
//! read as Arrow, and divided anew among shards by the hash of the key. What does not live here: the
//! operators, and when checkpoints happen.

mod arena;
pub mod checkpoint;
mod checksum;
pub mod disk;
pub mod hash;
pub mod ints;
mod key_table;
pub mod lock;
mod packed;
mod removal;
pub mod runs;
mod slot_index;
mod slot_vec;
mod table;

pub use disk::on_durable_state;
pub use key_table::{KeyTable, Slots};
pub use slot_vec::{SlotVec, on_much_state};
pub use table::{HASH_COLUMN, StateTable};
