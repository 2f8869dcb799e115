//! Partitions whose rows vanish without a word of the log.
//!
//! The log has the changes of partitions as those of the whole table, and in this form PostgreSQL leaves out that one of them
//! was emptied by `TRUNCATE`; that one was dropped or detached is in no log. So the catalog is asked now and then, over a
//! connection of its own, and a notice says what it no longer has. It cannot say which rows those were, and a partition
//! that was only rewritten (`VACUUM FULL`) looks like one that was emptied; so the job goes on. What happens while no job
//! runs is not seen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::catalog::Table;
use crate::cdc::follow::text_rows;
use crate::driver::{Connection, DbError};
use crate::session::{Access, pause};

/// How often the catalog is asked.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// A partition: its name, and the file that its rows lie in, which `TRUNCATE` replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Partition {
    name: String,
    file: String,
}

/// Partitions by their object identifiers.
type Partitions = BTreeMap<String, Partition>;

/// The partitions of a table as they were when they were last looked at.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<Option<Partitions>>>);

impl Known {
    /// Looks at the partitions; what there is to tell of those that were known.
    ///
    /// # Errors
    /// Of the server.
    pub fn look(&self, connection: &mut dyn Connection, table: &Table) -> Result<Vec<String>, DbError> {
        let sql = format!(
            "SELECT p.relid::oid::text, p.relid::text, pg_catalog.pg_relation_filenode(p.relid)::text \
             FROM pg_catalog.pg_partition_tree({}::regclass) p WHERE p.isleaf",
            table.oid
        );
        let mut now = Partitions::new();
        for row in text_rows(connection, &sql, 3)? {
            let mut values = row.into_iter().map(Option::unwrap_or_default);
            let mut next = || values.next().unwrap_or_default();
            let (oid, name, file) = (next(), next(), next());
            now.insert(oid, Partition { name, file });
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = known.as_ref().map(|before| vanished(before, &now)).unwrap_or_default();
        *known = Some(now);
        Ok(told)
    }
}

/// What became of partitions whose rows may be gone.
fn vanished(before: &Partitions, now: &Partitions) -> Vec<String> {
    let told = |(oid, was): (&String, &Partition)| match now.get(oid) {
        None => Some(format!("partition {} was dropped or detached", was.name)),
        Some(is) if is.file != was.file => Some(format!("partition {} was emptied by TRUNCATE, or written anew", is.name)),
        Some(_) => None,
    };
    before.iter().filter_map(told).collect()
}

/// Tells of a table.
pub(super) fn tell(name: &str, told: &[String]) {
    for what in told {
        tidemill_connect::notice(&format!(
            "table {name}: {what}, which is not in the change log; rows that went with it stay in what the job has written"
        ));
    }
}

/// Asks for as long as it lives.
pub(super) struct Watch {
    done: Arc<AtomicBool>,
}

impl Watch {
    /// Watches the partitions of a table that is called `name` in notices.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(access: &Access, table: &Table, name: &str, known: &Known) -> Result<Self, DbError> {
        let done = Arc::new(AtomicBool::new(false));
        let watch = Watch { done: done.clone() };
        let (access, table, name, known) = (access.clone(), table.clone(), name.to_string(), known.clone());
        let run = move || {
            let mut connection = None;
            loop {
                pause(ASK_EVERY, &done);
                if done.load(Ordering::Relaxed) {
                    return;
                }
                // Whoever reads the log says that the server is away.
                connection = ask(connection, &access, &table, &name, &known).ok();
            }
        };
        let thread = std::thread::Builder::new().name("tidemill-cdc-parts".into()).spawn(run);
        thread.map_err(|e| DbError::connection(format!("starting the thread that watches partitions: {e}")))?;
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Asks once; gives the connection for the next time.
fn ask(
    connection: Option<Box<dyn Connection>>,
    access: &Access,
    table: &Table,
    name: &str,
    known: &Known,
) -> Result<Box<dyn Connection>, DbError> {
    let mut connection = connection.map_or_else(|| access.driver.connect(access.connect_timeout), Ok)?;
    tell(name, &known.look(connection.as_mut(), table)?);
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(all: &[(&str, &str, &str)]) -> Partitions {
        let one = |(oid, name, file): &(&str, &str, &str)| (oid.to_string(), Partition { name: name.to_string(), file: file.to_string() });
        all.iter().map(one).collect()
    }

    #[test]
    fn partitions_that_are_gone_or_lie_elsewhere_are_told_of() {
        let before = partitions(&[("1", "orders_1", "11"), ("2", "orders_2", "12"), ("3", "orders_3", "13")]);
        assert!(vanished(&before, &before).is_empty());
        // A new name and a new partition take nothing away.
        let now = partitions(&[("1", "old_1", "11"), ("2", "orders_2", "22"), ("4", "orders_4", "14")]);
        let told = vanished(&before, &now);
        assert_eq!(told, ["partition orders_2 was emptied by TRUNCATE, or written anew", "partition orders_3 was dropped or detached"]);
    }
}
