//! Row images to rows, against bytes.

use std::sync::Arc;

use ::mysql::Column;
use ::mysql::consts::ColumnType;
use arrow::datatypes::{DataType, Field, Schema};
use crossbeam_channel::{Receiver, unbounded};
use tidemill_block::{Block, text};
use tidemill_connect::Waker;

use super::*;
use crate::cdc::feed::Event;
use crate::cdc::position::Offset;
use crate::mysql::binlog::catalog::Wanted;
use crate::mysql::binlog::value::Meaning;

/// A table `(v varchar(9), unread bigint, id int)`, of which `id` and `v` are read.
fn rows() -> (TableRows, Feed, Receiver<Event>) {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, false), Field::new("v", DataType::Utf8, true)]));
    let followed = Followed { table: "d.t".into(), schema, key: vec![0] };
    let wanted = |place, kind: &str| Wanted { place, kind: kind.into(), meaning: Meaning::default(), order: None };
    let described = vec![Column::new(ColumnType::MYSQL_TYPE_LONG), Column::new(ColumnType::MYSQL_TYPE_VAR_STRING)];
    let table = Table {
        database: "d".into(),
        name: "t".into(),
        width: 3,
        wanted: vec![wanted(2, "int"), wanted(0, "varchar")],
        described: described.into(),
    };
    let (sender, events) = unbounded();
    let mut feed = Feed::new(sender, Waker::noop(), Arc::default(), vec![0]);
    feed.begin(Offset { file: 1, at: 4 });
    let mut rows = TableRows::new(&followed, table).unwrap();
    rows.current = Some((5, vec![Form::Bytes(1), Form::Integer(8), Form::Integer(4)]));
    (rows, feed, events)
}

/// An image of a row; `unread` is NULL.
fn image(id: i32, v: Option<&str>) -> Vec<u8> {
    let mut bytes = vec![if v.is_none() { 0b011 } else { 0b010 }];
    if let Some(v) = v {
        bytes.push(v.len() as u8);
        bytes.extend(v.as_bytes());
    }
    bytes.extend(id.to_le_bytes());
    bytes
}

const ALL: Option<&[bool]> = Some(&[true; 3]);

fn shown(events: &Receiver<Event>) -> String {
    let blocks = events.try_iter().filter_map(|event| {
        let Event::Changes(changes) = event else { return None };
        let kinds = changes.kinds.unwrap_or_else(|| vec![RowKind::Insert; changes.batch.num_rows()]);
        Some(text::format(&Block::changelog(changes.batch, kinds.into(), 0)))
    });
    blocks.collect::<String>().trim().to_string()
}

#[test]
fn images_are_rows() {
    let (mut rows, mut feed, events) = rows();
    let two = [image(1, Some("a")), image(-2, None)].concat();
    rows.rows(&two, None, ALL, &mut feed).unwrap();
    rows.rows(&[image(1, Some("a")), image(1, Some("bc"))].concat(), ALL, ALL, &mut feed).unwrap();
    rows.rows(&two[..image(1, Some("a")).len()], ALL, None, &mut feed).unwrap();
    rows.flush(&mut feed).unwrap();
    assert_eq!(shown(&events), "+I 1 a\n+I -2 NULL\n-U 1 a\n+U 1 bc\n-D 1 a");
}

#[test]
fn a_row_with_another_key_is_another_row() {
    let (mut rows, mut feed, events) = rows();
    let moved = [image(1, Some("a")), image(2, Some("a")), image(3, None), image(3, Some("b"))].concat();
    rows.rows(&moved, ALL, ALL, &mut feed).unwrap();
    rows.flush(&mut feed).unwrap();
    assert_eq!(shown(&events), "-D 1 a\n+I 2 a\n-U 3 NULL\n+U 3 b");
}

#[test]
fn rows_of_before_are_passed_over() {
    let (mut rows, mut feed, events) = rows();
    let place = crate::cdc::position::Position { from: Offset { file: 1, at: 4 }, skip: 1, ..Default::default() };
    feed.go_to(place).unwrap();
    feed.begin(Offset { file: 1, at: 4 });
    rows.rows(&[image(1, Some("a")), image(1, Some("bc"))].concat(), ALL, ALL, &mut feed).unwrap();
    rows.flush(&mut feed).unwrap();
    assert_eq!(shown(&events), "+U 1 bc");
}

#[test]
fn what_is_missing_is_said() {
    let (mut rows, mut feed, _events) = rows();
    let whole = image(1, Some("abc"));
    for length in 1..whole.len() {
        assert!(rows.rows(&whole[..length], None, ALL, &mut feed).unwrap_err().message.contains("damaged"), "{length}");
    }
    let error = rows.rows(&[0, 1, b'a'], None, Some(&[true, false, false]), &mut feed).unwrap_err();
    assert!(error.message.contains("binlog_row_image"), "{}", error.message);
}
