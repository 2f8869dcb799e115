//! Threads of lookups.

use std::time::Instant;

use arrow::datatypes::{DataType, Field, Schema};
use tempfile::TempDir;
use tidemill_block::text;
use tidemill_format::options::RawOptions;

use super::*;

/// Threads outlived their lookup, and their connections were cut off when the process ended.
#[test]
fn threads_end_with_their_lookup() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("t.db");
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1), (2)").unwrap();
    let url = crate::url::Url::parse(&format!("jdbc:sqlite:{}", file.display())).unwrap();
    let access = Access {
        driver: crate::sqlite::driver(&url).unwrap(),
        place: "SQLite".into(),
        connect_timeout: Duration::from_secs(5),
        retry_timeout: Duration::ZERO,
        max_retries: 0,
    };
    let columns: SchemaRef = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
    let target = Target { table: "t".into(), schema: columns.clone(), key: Vec::new() };
    let options = LookupOptions::checked(&mut RawOptions::new("table 't'", Vec::<(String, String)>::new())).unwrap();
    let table = JdbcLookupTable::new("table 't'".into(), access.clone(), target, options, 2);
    let before = Arc::strong_count(&access.driver);
    let context = LookupContext { keys: columns.clone(), columns: columns.clone(), wake: Waker::noop(), shard: 0, shards: 1 };
    let mut lookup = table.open(context).unwrap();
    for call in [1, 2] {
        lookup.start(call, &text::parse(&columns, "1\n2").batch).unwrap();
    }
    let (mut answers, begun) = (Vec::new(), Instant::now());
    while answers.len() < 2 {
        lookup.finished(&mut answers);
        assert!(begun.elapsed() < Duration::from_secs(60), "{answers:?}");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(Arc::strong_count(&access.driver) > before);
    let begun = Instant::now();
    drop(lookup);
    assert_eq!(Arc::strong_count(&access.driver), before);
    assert!(begun.elapsed() < LEAVE_AFTER, "{:?}", begun.elapsed());
}
