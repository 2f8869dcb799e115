//! Crashes at any moment between writing rows and their commit: every row is there once.

use std::sync::Mutex;

use arrow::array::{Int64Array, StringArray};
use tidemill_connect::Arrived;

use super::*;

fn columns() -> SchemaRef {
    schema(&[("id", DataType::Int64), ("name", DataType::Utf8)])
}

/// A sink that keeps its files in the state directory.
fn keeping(place: &Place) -> Box<dyn Sink> {
    let sink = place.sink(&columns(), &[], &[]);
    sink.keep_in(&place.state());
    sink
}

fn write(writer: &mut dyn Writer, ids: std::ops::Range<i64>) {
    let schema = columns();
    let names = StringArray::from_iter_values(ids.clone().map(|id| format!("{id:0>180}")));
    let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(names)]).unwrap();
    writer.write(&Block::inserts(batch, 0)).unwrap();
}

#[track_caller]
fn check(place: &Place, rows: i64) {
    assert_eq!(place.number("SELECT COUNT(*) FROM t"), rows);
    assert_eq!(place.number("SELECT COUNT(DISTINCT id) FROM t"), rows);
}

/// `rows` in two parts, the second after the first commit.
fn crashes(rows: i64) {
    let place = Place::new();
    let (first, second) = {
        let sink = keeping(&place);
        let mut writer = start(sink.as_ref(), &columns());
        for from in (0..rows).step_by(1000) {
            write(writer.as_mut(), from..rows.min(from + 1000));
        }
        let first = writer.prepare(false).unwrap();
        check(&place, 0);
        // The next epoch begins before the commit.
        write(writer.as_mut(), rows..rows + 500);
        sink.commit(&first).unwrap();
        check(&place, rows);
        write(writer.as_mut(), rows + 500..rows + 1000);
        (first, writer.prepare(false).unwrap())
    };
    // The process ended here. A checkpoint had the second part, or not.
    let sink = keeping(&place);
    for _ in 0..2 {
        sink.recover(&second, "").unwrap();
        check(&place, rows + 1000);
    }
    assert_eq!(names(&place.state().join("sinks")), Vec::<String>::new());
    // The run goes on; the marks of the former one go with its first commit.
    let mut writer = sink.writer(context(&columns(), "later")).unwrap();
    write(writer.as_mut(), rows + 1000..rows + 1010);
    let third = writer.prepare(true).unwrap();
    sink.commit(&third).unwrap();
    sink.commit(&third).unwrap();
    check(&place, rows + 1010);
    assert_eq!(place.number("SELECT COUNT(*) FROM tidemill_checkpoints"), 1);
    assert_ne!(first, second);
}

#[test]
fn few_rows_are_committed_from_their_file() {
    crashes(10);
}

#[test]
fn many_rows_are_committed_from_the_open_transaction() {
    crashes(60_000);
}

#[test]
fn rows_that_no_checkpoint_has_are_forgotten() {
    let place = Place::new();
    for rows in [10, 60_000] {
        {
            let sink = keeping(&place);
            let mut writer = start(sink.as_ref(), &columns());
            for from in (0..rows).step_by(1000) {
                write(writer.as_mut(), from..rows.min(from + 1000));
            }
            writer.prepare(false).unwrap();
        }
        assert_eq!(names(&place.state().join("sinks")).len(), 1);
        keeping(&place).recover(&[], "").unwrap();
        check(&place, 0);
        assert_eq!(names(&place.state().join("sinks")), Vec::<String>::new());
    }
}

#[test]
fn two_sinks_of_one_file_do_not_wait_for_each_other() {
    let place = Place::new();
    let first = keeping(&place);
    let mut writer = start(first.as_ref(), &columns());
    for from in (0..60_000).step_by(1000) {
        write(writer.as_mut(), from..from + 1000);
    }
    writer.flush().unwrap();
    // The second comes while the first may have a transaction open.
    let second = keeping(&place);
    let mut other = second.writer(context(&columns(), "run")).unwrap();
    write(other.as_mut(), 100_000..100_010);
    let theirs = other.prepare(false).unwrap();
    second.commit(&theirs).unwrap();
    check(&place, 10);
    let ours = writer.prepare(false).unwrap();
    first.commit(&ours).unwrap();
    check(&place, 60_010);
}

#[test]
fn rows_are_told_when_others_see_them() {
    for keeps in [false, true] {
        let place = Place::new();
        let sink = if keeps { keeping(&place) } else { place.sink(&columns(), &[], &[]) };
        let mut writer = start(sink.as_ref(), &columns());
        let told = Arc::new(Mutex::new(Vec::new()));
        let (theirs, file) = (told.clone(), place.file());
        let asked = writer.tell_visible(Arc::new(move |arrived: &[Arrived]| {
            let connection = rusqlite::Connection::open(&file).unwrap();
            let there: i64 = connection.query_row("SELECT COUNT(*) FROM t", [], |row| row.get(0)).unwrap();
            theirs.lock().unwrap().push((there, arrived.to_vec()));
        }));
        assert!(asked);
        let block = text::parse(&columns(), "1 a\n2 b");
        writer.write(&Block::inserts(block.batch, 5)).unwrap();
        let prepared = writer.prepare(false).unwrap();
        assert_eq!(told.lock().unwrap().is_empty(), keeps);
        for _ in 0..2 {
            sink.commit(&prepared).unwrap();
            assert_eq!(*told.lock().unwrap(), [(2, vec![Arrived { arrival_ns: 5, rows: 2 }])], "keeps {keeps}");
        }
    }
}

#[test]
fn exactly_once_needs_a_place() {
    let place = Place::new();
    let sink = place.sink(&columns(), &[], &[("sink.delivery-guarantee", "exactly-once")]);
    let error = sink.recover(&[], "").unwrap_err().to_string();
    assert!(error.contains("--state-dir"), "{error}");
}

#[test]
fn refused_rows_are_passed_over_by_commits_too() {
    let place = Place::new();
    place.run("CREATE TABLE t (id BIGINT UNIQUE, name TEXT)");
    let sink = place.sink(&columns(), &[], &[("sink.on-error", "skip")]);
    sink.keep_in(&place.state());
    let mut writer = start(sink.as_ref(), &columns());
    write(writer.as_mut(), 0..100);
    write(writer.as_mut(), 90..110);
    let prepared = writer.prepare(false).unwrap();
    sink.commit(&prepared).unwrap();
    check(&place, 110);
}
