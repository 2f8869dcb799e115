//! A reading that is cut off, by a kill of the job and then by a connection that breaks, leaves nothing of rows that are gone.

use std::sync::Mutex;
use std::time::Duration;

use arrow::array::Int64Array;
use arrow::datatypes::Int64Type;
use crossbeam_channel::unbounded;
use tidemill_block::RowKind;
use tidemill_connect::Waker;

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
    dialect: &'static dyn Dialect,
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

    fn stream(&mut self, _feed: &mut Feed) -> Result<(), DbError> {
        Ok(())
    }
}

/// A job was killed that had read all of the table, with a checkpoint behind key 3. The one after it lost its connection behind
/// key 6; then key 9 was deleted, which only the killed job had seen. It stayed in the copy for ever: the new reading did not
/// have it, and the log's deletion was passed over as one that the reading had seen.
#[test]
fn what_a_killed_job_wrote_is_undone_on_each_connection() {
    let text = "postgresql://db/events?ssl-mode=disable";
    let driver = crate::postgres::driver(&Url::parse(text).unwrap()).unwrap();
    let dialect = driver.dialect();
    let minute = Duration::from_secs(60);
    let access = Access { driver, place: text.into(), connect_timeout: minute, retry_timeout: minute, max_retries: 0 };
    let replayed: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let readings = vec![Rest { keys: vec![4, 5, 6], breaks: true }, Rest { keys: vec![8], breaks: false }];
    let deleted = &[(15, 2), (15, 7), (25, 5), (25, 9)];
    let log = Box::new(Log { readings, at: 10, deleted, replayed: replayed.clone(), dialect });
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
