//! Messages to rows, against bytes.

use std::sync::Arc;

use arrow::datatypes::{Field as Column, Schema};
use crossbeam_channel::{Receiver, unbounded};
use tidemill_block::{Block, text};
use tidemill_connect::Waker;

use super::*;
use crate::cdc::feed::Event;
use crate::cdc::position::Offset;
use crate::postgres::replication::catalog;
use crate::postgres::table::TableColumn;
use crate::postgres::types::Shape;

/// Table `s.t (id integer, v text)` in bytes, with this replica identity, `id` in it.
fn relation(identity: u8) -> Vec<u8> {
    let mut bytes = b"R\0\0\0\x07s\0t\0".to_vec();
    bytes.push(identity);
    bytes.extend(b"\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\0v\0\0\0\0\x19\xff\xff\xff\xff");
    bytes
}

fn table() -> Table {
    let column = |name: &str, declared: &str, form, oid| catalog::Column {
        described: TableColumn {
            name: name.into(),
            declared: declared.into(),
            bare: declared.into(),
            shape: Shape { form, element: None, modifier: -1 },
            generated: false,
        },
        oid,
    };
    let columns = vec![column("id", "integer", Form::Int4, 23), column("v", "text", Form::Text, 25)];
    Table { oid: 7, schema: "s".into(), name: "t".into(), columns, partitioned: false }
}

fn rows(upsert: bool) -> (TableRows, Feed, Receiver<Event>) {
    let schema = Arc::new(Schema::new(vec![Column::new("id", DataType::Int64, false), Column::new("v", DataType::Utf8, true)]));
    let followed = Followed { table: "s.t".into(), schema, key: vec![0] };
    let (sender, events) = unbounded();
    let mut feed = Feed::new(sender, Waker::noop(), Arc::default(), vec![0]);
    feed.begin(Offset::at(10));
    (TableRows::new(&followed, table(), upsert).unwrap(), feed, events)
}

/// A row of both columns; `v` may be NULL or unchanged.
fn tuple(id: i32, v: Result<&str, u8>) -> Vec<u8> {
    let mut bytes = b"\0\x02b\0\0\0\x04".to_vec();
    bytes.extend(id.to_be_bytes());
    match v {
        Ok(v) => {
            bytes.push(b'b');
            bytes.extend((v.len() as i32).to_be_bytes());
            bytes.extend(v.as_bytes());
        }
        Err(kind) => bytes.push(kind),
    }
    bytes
}

fn message(kind: u8, parts: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0, 7];
    for (tag, tuple) in parts {
        bytes.push(*tag);
        bytes.extend(tuple);
    }
    bytes
}

#[track_caller]
fn check(upsert: bool, identity: u8, messages: &[Vec<u8>], expect: &str) {
    let (mut rows, mut feed, events) = rows(upsert);
    rows.take(&relation(identity), &mut feed).unwrap();
    for message in messages {
        rows.take(message, &mut feed).unwrap();
    }
    rows.flush(&mut feed).unwrap();
    let Some(Event::Changes(changes)) = events.try_iter().next() else { panic!("no rows") };
    let kinds = changes.kinds.unwrap_or_else(|| vec![RowKind::Insert; changes.batch.num_rows()]);
    assert_eq!(text::format(&Block::changelog(changes.batch, kinds.into(), 0)).trim(), expect.trim());
}

#[track_caller]
fn fails(upsert: bool, identity: u8, message: &[u8], expect: &str) {
    let (mut rows, mut feed, _events) = rows(upsert);
    let result = rows.take(&relation(identity), &mut feed).and_then(|()| rows.take(message, &mut feed));
    let error = result.unwrap_err().message;
    assert!(error.contains(expect), "{error}");
}

#[test]
fn changes_have_old_and_new_rows() {
    let messages = [
        message(b'I', &[(b'N', tuple(1, Ok("a")))]),
        message(b'U', &[(b'O', tuple(1, Ok("a"))), (b'N', tuple(1, Err(b'u')))]),
        message(b'U', &[(b'O', tuple(1, Ok("a"))), (b'N', tuple(2, Err(b'n')))]),
        message(b'D', &[(b'O', tuple(2, Err(b'n')))]),
    ];
    check(false, b'f', &messages, "+I 1 a\n-U 1 a\n+U 1 a\n-D 1 a\n+I 2 NULL\n-D 2 NULL");
}

#[test]
fn without_a_key_rows_are_updated() {
    let (mut rows, mut feed, events) = rows(false);
    rows.followed.key.clear();
    rows.take(&relation(b'f'), &mut feed).unwrap();
    rows.take(&message(b'U', &[(b'O', tuple(1, Ok("a"))), (b'N', tuple(2, Ok("a")))]), &mut feed).unwrap();
    rows.flush(&mut feed).unwrap();
    let Some(Event::Changes(changes)) = events.try_iter().next() else { panic!("no rows") };
    assert_eq!(changes.kinds, Some(vec![RowKind::UpdateBefore, RowKind::UpdateAfter]));
}

#[test]
fn upserts_take_out_keys_that_changed() {
    let messages = [
        message(b'I', &[(b'N', tuple(1, Ok("a")))]),
        message(b'U', &[(b'N', tuple(1, Ok("b")))]),
        message(b'U', &[(b'K', tuple(1, Err(b'n'))), (b'N', tuple(2, Ok("c")))]),
        message(b'U', &[(b'O', tuple(2, Ok("c"))), (b'N', tuple(2, Ok("d")))]),
        message(b'D', &[(b'K', tuple(2, Err(b'n')))]),
    ];
    check(true, b'd', &messages, "+I 1 a\n+U 1 b\n-D 1 NULL\n+U 2 c\n+U 2 d\n-D 2 NULL");
}

#[test]
fn what_is_missing_is_said() {
    let update = message(b'U', &[(b'N', tuple(1, Ok("b")))]);
    fails(false, b'd', &update, "ALTER TABLE s.t REPLICA IDENTITY FULL");
    fails(false, b'd', &message(b'D', &[(b'K', tuple(1, Err(b'n')))]), "'changelog-mode' = 'upsert'");
    fails(true, b'd', &message(b'U', &[(b'N', tuple(1, Err(b'u')))]), "column 'v': a large value");
    fails(true, b'd', b"T\0\0\0\x01\0\0\0\0\x07", "TRUNCATE");
    fails(true, b'd', b"U\0\0\0\x07", "damaged");
    fails(true, b'd', b"R\0\0\0\x07s\0other\0d\0\0", "its log calls it s.other");
    fails(true, b'd', b"R\0\0\0\x07s\0t\0d\0\x01\x01id\0\0\0\0\x17\xff\xff\xff\xff", "no column 'v'");
    fails(
        true,
        b'd',
        b"R\0\0\0\x07s\0t\0d\0\x02\x01id\0\0\0\0\x14\xff\xff\xff\xff\0v\0\0\0\0\x19\xff\xff\xff\xff",
        "column 'id' has another type",
    );
    fails(
        true,
        b'd',
        b"R\0\0\0\x07s\0t\0d\0\x02\0id\0\0\0\0\x17\xff\xff\xff\xff\x01v\0\0\0\0\x19\xff\xff\xff\xff",
        "not of the table's replica identity",
    );
}
