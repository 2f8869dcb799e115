//! Positions of a reader.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_connect::ReadRequest;
use tidemill_format::options::{OptionSet, RawOptions};

use super::*;
use crate::layout::{KeyOptions, Layout};
use crate::options::{CommonOptions, FieldsInclude};
use crate::prefetch::Prefetch;
use crate::properties::Connection;

/// After a jump to the newest message a checkpoint kept the offset that was gone: a restart before the next message jumped again.
#[test]
fn a_position_is_where_reading_goes_on() {
    let options = [("properties.bootstrap.servers", "127.0.0.1:1"), ("format", "json")];
    let mut raw = RawOptions::new("table 't'", options.map(|(k, v)| (k.to_string(), v.to_string())));
    let common = CommonOptions::take(&mut raw).unwrap();
    let connection = Connection::take(&common, &mut raw).unwrap();
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, true)]));
    let keys = KeyOptions { fields: Vec::new(), prefix: "", include: FieldsInclude::All, required: false };
    let layout = Layout::take(&schema, &keys, "t", &mut raw).unwrap();
    let config = connection.consumer(OffsetReset::Latest, Prefetch::shared(None, 1), false);
    let consumer = Consumer::start(&connection, &config, None).unwrap();
    let reader = |offset| {
        let maker = RowMaker::new(&layout, &ReadRequest::all(schema.clone()), false).unwrap();
        let position = Position { topic: "t".into(), partition: 0, offset, stop: None, topic_id: Some("old".into()) };
        PartitionReader::new(None, consumer.clone(), maker, position, OffsetReset::Latest)
    };
    let check = |from, begins, expect: (i64, Option<&str>)| {
        let mut reader = reader(from);
        reader.begins(begins);
        let position = Position::of(&reader.position()).unwrap();
        assert_eq!((position.offset, position.topic_id.as_deref()), expect, "from {from} to {begins}");
    };
    check(20, 30, (30, Some("old")));
    check(20, 20, (20, Some("old")));
    check(EARLIEST, 30, (EARLIEST, Some("old")));
    check(20, 3, (3, None));
}
