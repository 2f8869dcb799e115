//! A reading that is cut off, by a kill of the job and then by a connection that breaks, leaves nothing of rows that are gone.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use arrow::array::Int64Array;
use arrow::datatypes::Int64Type;
use crossbeam_channel::unbounded;
use tidemill_block::RowKind;
use tidemill_connect::Waker;

use super::super::feed::LIVED;
use super::*;
use crate::driver::Target;
use crate::url::Url;

fn rows(keys: &[i64]) -> RecordBatch {
    RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(keys.to_vec())) as ArrayRef)]).unwrap()
}

fn keys(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// A connection over which what is left of a table is read, and that breaks then if it is to.
struct Rest {
    keys: Vec<i64>,
    breaks: bool,
}

fn unwanted<T>() -> Result<T, DbError> {
    Err(DbError::fatal("nobody was to ask for this"))
}

impl Connection for Rest {
    fn execute(&mut self, _sql: &str) -> Result<u64, DbError> {
        unwanted()
    }

    fn query(
        &mut self,
        _sql: &str,
        _parameters: Option<&RecordBatch>,
        _schema: &SchemaRef,
        _rows: usize,
        piece: &mut dyn FnMut(RecordBatch) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        piece(rows(&self.keys))?;
        if self.breaks { Err(DbError::connection("the server was killed")) } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<(), DbError> {
        unwanted()
    }

    fn commit(&mut self) -> Result<(), DbError> {
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        unwanted()
    }

    fn append(&mut self, _target: &Target, _rows: &RecordBatch) -> Result<(), DbError> {
        unwanted()
    }

    fn upsert(&mut self, _target: &Target, _rows: &RecordBatch) -> Result<(), DbError> {
        unwanted()
    }

    fn delete(&mut self, _target: &Target, _keys: &RecordBatch) -> Result<(), DbError> {
        unwanted()
    }

    fn look_up(&mut self, _target: &Target, _keys: &RecordBatch, _columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        unwanted()
    }

    fn table_columns(&mut self, _table: &str) -> Result<Option<Vec<(String, String)>>, DbError> {
        unwanted()
    }

    fn alive(&mut self) -> bool {
        true
    }
}

/// A log whose snapshots are at places 20, 30, …
struct Log {
    readings: Vec<Rest>,
    at: u64,
    /// Where a key was deleted, in order.
    deleted: &'static [(u64, i64)],
    /// From where to where was replayed.
    replayed: Arc<Mutex<Vec<(u64, u64)>>>,
    /// How long connections live that carry changes, though there are none; a further one ends well.
    lives: Vec<Duration>,
    dialect: &'static dyn Dialect,
}

/// A database that is never reached, whose transactions are tried again twice.
fn access() -> Access {
    let text = "postgresql://db/events?ssl-mode=disable";
    let driver = crate::postgres::driver(&Url::parse(text).unwrap()).unwrap();
    let minute = Duration::from_secs(60);
    Access { driver, place: text.into(), connect_timeout: minute, retry_timeout: minute, max_retries: 2 }
}

impl ChangeLog for Log {
    fn prepare(&mut self, position: Option<&Position>, _startup: Startup) -> Result<Option<Position>, DbError> {
        if position.is_some() { Ok(None) } else { unwanted() }
    }

    fn order(&self) -> Option<Vec<String>> {
        Some(vec!["id".into()])
    }

    fn dialect(&self) -> &'static dyn Dialect {
        self.dialect
    }

    fn snapshot(&mut self, _feed: &Feed) -> Result<(Offset, Box<dyn Connection>), DbError> {
        self.at += 10;
        Ok((Offset::at(self.at), Box::new(self.readings.remove(0))))
    }

    fn replay(&mut self, feed: &mut Feed, from: Offset, upto: Offset) -> Result<(), DbError> {
        self.replayed.lock().unwrap().push((from.at, upto.at));
        let mut pending = Vec::new();
        for (at, key) in self.deleted.iter().filter(|(at, _)| *at < upto.at) {
            feed.begin(Offset::at(*at));
            if feed.wants() {
                pending.push(*key);
                feed.row(RowKind::Delete);
            }
            feed.commit(Offset::at(at + 1))?;
        }
        feed.flush(rows(&pending))
    }

    fn stream(&mut self, feed: &mut Feed) -> Result<(), DbError> {
        if self.lives.is_empty() {
            return Ok(());
        }
        let born = Instant::now();
        feed.alive(born);
        feed.alive(born + self.lives.remove(0));
        Err(DbError::retry("the server was started anew"))
    }
}

/// A job was killed that had read all of the table, with a checkpoint behind key 3. The one after it lost its connection behind
/// key 6; then key 9 was deleted, which only the killed job had seen. It stayed in the copy for ever: the new reading did not
/// have it, and the log's deletion was passed over as one that the reading had seen.
#[test]
fn what_a_killed_job_wrote_is_undone_on_each_connection() {
    let access = access();
    let dialect = access.driver.dialect();
    let replayed: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let readings = vec![Rest { keys: vec![4, 5, 6], breaks: true }, Rest { keys: vec![8], breaks: false }];
    let deleted = &[(15, 2), (15, 7), (25, 5), (25, 9)];
    let log = Box::new(Log { readings, at: 10, deleted, replayed: replayed.clone(), lives: Vec::new(), dialect });
    let followed = Followed { table: "s.t".into(), schema: rows(&[]).schema(), key: vec![0] };
    let (sender, events) = unbounded();
    let feed = Feed::new(sender, Waker::noop(), Arc::default(), vec![0]);
    let follower = Follower { log, followed, access, startup: Startup::Initial, fetch_size: 100, feed };
    let reading = Reading { at: Offset::at(10), rows: 3, after: Some(encode_row(&rows(&[3])).unwrap()) };
    follower.run(Some(Position { server: "s".into(), from: Offset::at(10), reading: Some(reading), ..Position::default() }));
    let said = events.try_iter().map(|event| match event {
        Event::Table { batch, .. } => format!("read {:?}", keys(&batch)),
        Event::Undone { batch, kind, .. } => format!("{kind:?} {:?}", keys(&batch)),
        Event::Position(position) => format!("pieces: {}", position.parts.len()),
        Event::Changes(_) => "changes".into(),
        Event::Failed(error) => format!("failed: {error}"),
    });
    let first = ["Insert [7]", "Delete [7]", "pieces: 1", "read [4, 5, 6]"];
    let second = ["Insert [9]", "Delete [9]", "pieces: 2", "read [8]", "pieces: 3"];
    assert_eq!(said.collect::<Vec<String>>(), [&first[..], &second[..]].concat());
    assert_eq!(*replayed.lock().unwrap(), [(10, 20), (20, 30)]);
}

/// Follows the log of a table at which nothing happens, over connections that live so long; what there is to say at the end.
fn quiet(lives: &[Duration]) -> Option<String> {
    let access = access();
    let dialect = access.driver.dialect();
    let log = Box::new(Log { readings: Vec::new(), at: 10, deleted: &[], replayed: Arc::default(), lives: lives.to_vec(), dialect });
    let followed = Followed { table: "s.t".into(), schema: rows(&[]).schema(), key: vec![0] };
    let (sender, events) = unbounded();
    let feed = Feed::new(sender, Waker::noop(), Arc::default(), vec![0]);
    let follower = Follower { log, followed, access, startup: Startup::Initial, fetch_size: 100, feed };
    follower.run(Some(Position { server: "s".into(), from: Offset::at(10), ..Position::default() }));
    events.try_iter().find_map(|event| match event {
        Event::Failed(error) => Some(error.to_string()),
        _ => None,
    })
}

/// A job over a quiet table ended with the sixth break of its connection in a week, each of which was healed at once: only a
/// change of the table renewed the patience.
#[test]
fn patience_is_renewed_by_a_connection_that_lived() {
    let short = LIVED / 2;
    assert_eq!(quiet(&[LIVED; 4]), None);
    assert_eq!(quiet(&[short, LIVED, short, LIVED]), None);
    let failed = quiet(&[short; 4]).expect("breaks that follow each other at once end the job");
    assert!(failed.contains("after 2 further attempts"), "{failed}");
}
