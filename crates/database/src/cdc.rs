//! Change data capture: the connectors `postgres-cdc` and `mysql-cdc`, which read a table and then every change of it.
//!
//! What they promise after a crash. Every change of the table comes once and in the order of commits, whatever fails:
//! first the rows there are, seen in one transaction whose place in the database's change log is known, then the log from
//! that place on. Positions are those of the log, so a restart goes on in the middle of a transaction, and the
//! database is told to forget its log only up to what a checkpoint holds. A transaction is never gathered: rows are
//! handed on as they come, so its size costs no memory.
//!
//! *The first reading, interrupted.* The transaction that saw the table is gone with its connection. The rest of the
//! rows is then read in a new one, which sees the table as it is later; so from there on keys have different ages. The
//! position keeps, for each piece of the table in the order of its primary key, as of which place in the log it was
//! read ([`position::Part`]), and changes are passed over that the piece of their key has already seen. Pieces are
//! forgotten when the log has passed the last of them.
//!
//! *What was written behind the checkpoint.* Tables with keys are written at once, so a job that was killed may have
//! written rows that its checkpoint does not know. A log gives the same again, which changes nothing; a table does not:
//! what was changed or deleted meanwhile is not read again. So before the rest is read, the old rows of
//! the changes since come and go once more, which takes out what came of them ([`feed::Feed::undo`]), and the first rows
//! wait for a checkpoint that knows the place ([`gate`]). A connection that breaks in such a reading has this done again: how far
//! the job that was killed had come is not known, so what it wrote may lie behind the new place, too. Where the log has no old
//! rows (`'changelog-mode' = 'upsert'`) that cannot be done, and a notice says so.
//!
//! - [`options`], [`connector`]: what users write
//! - [`position`]: places in a log, what a checkpoint holds
//! - [`follow`]: the thread: first the table, then the log, again and again on new connections
//! - [`feed`]: gathers changes into batches and knows where each row stands
//! - [`source`], [`reader`]: the two sides that the job sees; [`gate`]: what keeps the first rows back
//!
//! What the databases say and how lives with them: `postgres/replication`, `mysql/binlog`.

pub mod connector;
pub(crate) mod feed;
pub(crate) mod follow;
mod gate;
pub(crate) mod options;
pub(crate) mod position;
mod reader;
mod source;
