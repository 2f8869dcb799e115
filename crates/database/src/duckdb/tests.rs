//! Against the library, if it is installed or named by the environment; otherwise these tests say that they did not run.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray, StructArray, Time32MillisecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Fields, Int64Type, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use tempfile::TempDir;

use super::*;
use crate::driver::{DbErrorKind, Target};
use crate::not_run::not_run;
use crate::types::create_table;

/// A connection to a new file; `None`, which is said, without the library.
fn open() -> Option<(TempDir, Box<dyn Connection>)> {
    if let Err(why) = ffi::library() {
        not_run(&format!("a test over DuckDB: {why}"));
        return None;
    }
    let directory = TempDir::new().unwrap();
    let connection = connect(&directory, &[]).unwrap();
    Some((directory, connection))
}

fn connect(directory: &TempDir, parameters: &[(&str, &str)]) -> Result<Box<dyn Connection>, DbError> {
    let parameters = parameters.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    DuckDriver { path: directory.path().join("test.duckdb").display().to_string(), parameters }.connect(Duration::ZERO)
}

fn query(connection: &mut dyn Connection, sql: &str, schema: &SchemaRef) -> Result<RecordBatch, DbError> {
    let mut parts = Vec::new();
    connection.query(sql, None, schema, 1000, &mut |rows| {
        assert!(rows.num_rows() <= 1000);
        parts.push(rows);
        Ok(())
    })?;
    Ok(concat_batches(schema, &parts)?)
}

fn number(connection: &mut dyn Connection, sql: &str) -> i64 {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    query(connection, sql, &schema).unwrap().column(0).as_primitive::<Int64Type>().value(0)
}

fn rows(ids: &[i64], values: &[&str]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int64Array::from(ids.to_vec()))), ("v", Arc::new(StringArray::from(values.to_vec())))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

fn target(table: &str, rows: &RecordBatch, key: Vec<usize>) -> Target {
    Target { table: table.into(), schema: rows.schema(), key }
}

fn created(connection: &mut dyn Connection, target: &Target) {
    connection.execute(&create_table(&DuckDialect, target).unwrap()).unwrap();
}

/// All types with their extremes, five rows.
fn all_types() -> RecordBatch {
    let decimal = |precision: u8, scale: i8| -> ArrayRef {
        let most = 10i128.pow(precision.into()) - 1;
        let values = Decimal128Array::from(vec![Some(most), Some(-most), None, Some(0), Some(1)]);
        Arc::new(values.with_precision_and_scale(precision, scale).unwrap())
    };
    let long = "a text that is longer than what stands in an entry, 😀";
    let items = Int32Array::from(vec![Some(1), None, Some(i32::MIN), Some(4)]);
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let nulls = |valid: [bool; 5]| Some(valid.to_vec().into());
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([2, 0, 0, 1, 1]), Arc::new(items), nulls([true, true, false, true, true]));
    let fields = Fields::from(vec![Field::new("a b", DataType::Int64, true), Field::new("s", DataType::Utf8, true)]);
    let parts: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None, None, Some(-1), Some(i64::MAX)])),
        Arc::new(StringArray::from(vec![Some("x"), Some(long), None, None, Some("")])),
    ];
    let structs = StructArray::new(fields, parts, nulls([true, true, false, true, true]));
    let pair = Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int64, true)]);
    let pairs: Vec<ArrayRef> =
        vec![Arc::new(StringArray::from(vec!["a", long, "c"])), Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))];
    let entries = Arc::new(Field::new("entries", DataType::Struct(pair.clone()), false));
    let lengths = OffsetBuffer::from_lengths([1, 2, 0, 0, 0]);
    let maps = MapArray::new(entries, lengths, StructArray::new(pair, pairs, None), nulls([true, true, false, true, true]), false);
    let micros = vec![Some(-62_135_596_800_000_000), Some(253_402_300_799_999_999), None, Some(0), Some(-1)];
    let millis: Vec<Option<i64>> = micros.iter().map(|v| v.map(|v| v / 1000)).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("boolean", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(false)]))),
        ("tinyint", Arc::new(Int8Array::from(vec![Some(i8::MIN), Some(i8::MAX), None, Some(0), Some(1)]))),
        ("smallint", Arc::new(Int16Array::from(vec![Some(i16::MIN), Some(i16::MAX), None, Some(0), Some(1)]))),
        ("int", Arc::new(Int32Array::from(vec![Some(i32::MIN), Some(i32::MAX), None, Some(0), Some(1)]))),
        ("bigint", Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None, Some(0), Some(1)]))),
        ("utinyint", Arc::new(UInt8Array::from(vec![Some(0), Some(u8::MAX), None, Some(1), Some(2)]))),
        ("ubigint", Arc::new(UInt64Array::from(vec![Some(0), Some(u64::MAX), None, Some(1), Some(2)]))),
        ("float", Arc::new(Float32Array::from(vec![Some(f32::MIN), Some(f32::INFINITY), None, Some(0.1), Some(f32::MIN_POSITIVE)]))),
        ("double", Arc::new(Float64Array::from(vec![Some(f64::MAX), Some(f64::NEG_INFINITY), None, Some(5e-324), Some(0.1 + 0.2)]))),
        ("decimal_4", decimal(4, 2)),
        ("decimal_9", decimal(9, 9)),
        ("decimal_18", decimal(18, 0)),
        ("decimal_38", decimal(38, 18)),
        ("string", Arc::new(StringArray::from(vec![Some("exactly 12 b"), Some(long), None, Some("a\0b"), Some("")]))),
        ("bytes", Arc::new(BinaryArray::from(vec![Some(&b"\0\xff\x80"[..]), Some(&[7; 100][..]), None, Some(&b""[..]), Some(&b"x"[..])]))),
        ("date", Arc::new(Date32Array::from(vec![Some(-719_162), Some(2_932_896), None, Some(0), Some(-1)]))),
        ("time", Arc::new(Time32MillisecondArray::from(vec![Some(0), Some(86_399_999), None, Some(1), Some(2)]))),
        ("ts_3", Arc::new(TimestampMillisecondArray::from(millis.clone()))),
        ("ts_6", Arc::new(TimestampMicrosecondArray::from(micros))),
        ("ts_9", Arc::new(TimestampNanosecondArray::from(vec![Some(i64::MAX - 1), Some(-i64::MAX + 1), None, Some(0), Some(-1)]))),
        ("ltz", Arc::new(TimestampMillisecondArray::from(millis).with_timezone("UTC"))),
        ("list", Arc::new(lists)),
        ("row", Arc::new(structs)),
        ("map", Arc::new(maps)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

#[test]
fn every_type_comes_back_as_it_was() {
    let Some((_directory, mut connection)) = open() else { return };
    // More rows than a chunk has, in an order that is not theirs.
    let five = all_types();
    let order: UInt32Array = (0..5000u32).map(|i| (i * 7 + i / 100) % 5).collect();
    let rows = take_record_batch(&five, &order).unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5000));
    let mut columns = vec![("id".to_string(), ids, true)];
    columns.extend(rows.schema().fields().iter().zip(rows.columns()).map(|(f, c)| (f.name().clone(), c.clone(), true)));
    let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    for (table, key) in [("appended", vec![]), ("upserted", vec![0])] {
        let target = target(table, &rows, key.clone());
        created(connection.as_mut(), &target);
        connection.begin().unwrap();
        if key.is_empty() {
            connection.append(&target, &rows).unwrap()
        } else {
            connection.upsert(&target, &rows).unwrap()
        }
        connection.commit().unwrap();
        let found = query(connection.as_mut(), &format!("SELECT * FROM {table} ORDER BY id"), &rows.schema()).unwrap();
        for (index, field) in rows.schema().fields().iter().enumerate() {
            assert_eq!(found.column(index).to_data(), rows.column(index).to_data(), "column {} of {table}", field.name());
        }
    }
}

#[test]
fn types_that_only_duckdb_has_are_read() {
    let Some((_directory, mut connection)) = open() else { return };
    let mut check = |sql: &str, data_type: DataType, expect: &str| {
        let schema = Arc::new(Schema::new(vec![Field::new("c", data_type, true)]));
        let said = match query(connection.as_mut(), &format!("SELECT {sql} AS c"), &schema) {
            Ok(rows) => array_value_to_string(rows.column(0), 0).unwrap(),
            Err(error) => error.message,
        };
        assert!(said == expect || (expect.ends_with('…') && said.contains(expect.trim_end_matches('…'))), "{sql}: {said}");
    };
    let text = DataType::Utf8;
    check("170141183460469231731687303715884105727::HUGEINT", DataType::Decimal128(38, 0), "170141183460469231731687303715884105727…");
    check("-99999999999999999999999999999999999999::HUGEINT", DataType::Decimal128(38, 0), "-99999999999999999999999999999999999999");
    check("12::UHUGEINT", DataType::Int8, "12");
    check("300::HUGEINT", DataType::Int8, "300…");
    check("1.25::DECIMAL(4, 2)", DataType::Decimal128(10, 1), "1.25…");
    check("'0194fdc2-fa2f-4cc0-81d3-ff12045b73c8'::UUID", text.clone(), "0194fdc2-fa2f-4cc0-81d3-ff12045b73c8");
    check("INTERVAL '14 months 3 days 1.5 seconds'", text.clone(), "1 year 2 months 3 days 00:00:01.5");
    check("'10101010101'::BIT", text.clone(), "10101010101");
    check("'b'::ENUM('a', 'b')", text.clone(), "b");
    check("'12:00:00+02:30'::TIMETZ", text.clone(), "12:00:00+02:30");
    check("'{\"a\": 1}'::JSON", text.clone(), "{\"a\": 1}");
    check("7", text.clone(), "7");
    check("'2024-01-31 08:00:00'::TIMESTAMP_S", DataType::Timestamp(TimeUnit::Millisecond, None), "2024-01-31T08:00:00");
    check("'2024-01-31 08:00:00.000001'::TIMESTAMP", DataType::Timestamp(TimeUnit::Millisecond, None), "08:00:00.000001…");
    check("'infinity'::TIMESTAMP", DataType::Timestamp(TimeUnit::Millisecond, None), "infinity…");
    check("'-infinity'::DATE", DataType::Date32, "-infinity…");
    check("'24:00:00'::TIME", DataType::Time32(TimeUnit::Millisecond), "24:00:00…");
    check("[1, 2]::INTEGER[2]", DataType::new_list(DataType::Int64, true), "[1, 2]");
    check("NULL", DataType::Int64, "");
    check("union_value(a := 1)", text.clone(), "make a view…");
    check("'x'", DataType::Int64, "declared BIGINT…");
    check("error('boom')", DataType::Int64, "boom…");
}

#[test]
fn columns_of_other_types_take_what_does_not_change() {
    let Some((_directory, mut connection)) = open() else { return };
    let mut check = |declared: &str, value: ArrayRef, expect: &str| {
        connection.execute(&format!("CREATE OR REPLACE TABLE t (c {declared})")).unwrap();
        let rows = RecordBatch::try_from_iter([("c", value)]).unwrap();
        let target = target("t", &rows, vec![]);
        connection.begin().unwrap();
        let said = match connection.append(&target, &rows).and_then(|()| connection.commit()) {
            Ok(()) => {
                let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Utf8, true)]));
                let rows = query(connection.as_mut(), "SELECT c::VARCHAR FROM t", &schema).unwrap();
                array_value_to_string(rows.column(0), 0).unwrap()
            }
            Err(error) => {
                connection.rollback().unwrap();
                format!("{:?}: {}", error.kind, error.message)
            }
        };
        assert!(
            said == expect || (expect.ends_with('…') && said.starts_with("Data") && said.contains(expect.trim_end_matches('…'))),
            "{said}"
        );
    };
    let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let number = |n: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![n])) };
    check("UUID", text("0194fdc2-fa2f-4cc0-81d3-ff12045b73c8"), "0194fdc2-fa2f-4cc0-81d3-ff12045b73c8");
    check("UUID", text("none"), "column c…");
    check("ENUM('a', 'b')", text("b"), "b");
    check("ENUM('a', 'b')", text("c"), "column c…");
    check("JSON", text("[1]"), "[1]");
    check("JSON", text("{bad"), "'{bad' is no JSON…");
    check("BIT", text("101"), "101");
    check("INTERVAL", text("1 month 2 days"), "1 month 2 days");
    check("HUGEINT", number(-5), "-5");
    check("UHUGEINT", number(-5), "-5 is below zero…");
    check("UTINYINT", number(255), "255");
    check("UTINYINT", number(256), "256…");
    check("DECIMAL(5, 2)", number(999), "999.00");
    check("DECIMAL(5, 2)", number(1000), "1000…");
    check("INTEGER NOT NULL", Arc::new(Int64Array::from(vec![None::<i64>])), "NOT NULL…");
    check("INTEGER CHECK (c > 5)", number(1), "CHECK…");
    check("TIMESTAMP_MS", Arc::new(TimestampMicrosecondArray::from(vec![1])), "00:00:00.000001…");
    check("TIMESTAMP_NS", Arc::new(TimestampNanosecondArray::from(vec![i64::MAX])), "out of its range…");
    check("TIME_NS", Arc::new(Time32MillisecondArray::from(vec![1])), "00:00:00.001");
    // Within others only the outermost were looked at: an infinity and what is no JSON went in.
    let list = |items: ArrayRef| -> ArrayRef {
        let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([items.len()]), items, None))
    };
    let row = |name: &str, part: ArrayRef, valid: bool| -> ArrayRef {
        let fields = Fields::from(vec![Field::new(name, part.data_type().clone(), true)]);
        Arc::new(StructArray::new(fields, vec![part], Some(vec![valid].into())))
    };
    let days = |days: i32| -> ArrayRef { Arc::new(Date32Array::from(vec![days])) };
    check("DATE[]", list(days(1)), "[1970-01-02]");
    check("DATE[]", list(days(i32::MAX)), "out of its range…");
    check("STRUCT(d DATE[])", row("d", list(days(i32::MAX)), true), "out of its range…");
    check("STRUCT(d DATE)", row("d", days(i32::MAX), true), "out of its range…");
    check("STRUCT(j JSON)", row("j", text("{bad"), true), "'{bad' is no JSON…");
    check("STRUCT(j JSON)", row("j", text("{bad"), false), "");
}

#[test]
fn rows_are_replaced_and_deleted() {
    let Some((_directory, mut connection)) = open() else { return };
    // With an index over the key, and without.
    for create in
        ["CREATE TABLE t (v VARCHAR, other INTEGER DEFAULT 7, id BIGINT PRIMARY KEY)", "CREATE OR REPLACE TABLE t (id BIGINT, v VARCHAR)"]
    {
        connection.execute(create).unwrap();
        let many: Vec<i64> = (0..300).collect();
        let old = rows(&many, &vec!["old"; 300]);
        let target = target("t", &old, vec![0]);
        let keys = |ids: &[i64]| rows(ids, &vec![""; ids.len()]).project(&[0]).unwrap();
        connection.begin().unwrap();
        connection.upsert(&target, &old).unwrap();
        connection.upsert(&target, &rows(&[5, 7, 1000], &["new", "new", "new"])).unwrap();
        connection.delete(&target, &keys(&[5, 6, 2000])).unwrap();
        connection.delete(&target, &keys(&(100..200).collect::<Vec<_>>())).unwrap();
        connection.upsert(&target, &rows(&[5, 100], &["again", "again"])).unwrap();
        connection.commit().unwrap();
        assert_eq!(number(connection.as_mut(), "SELECT count(*) FROM t"), 201);
        assert_eq!(number(connection.as_mut(), "SELECT count(*) FROM t WHERE v = 'again' AND id IN (5, 100)"), 2);
        assert_eq!(number(connection.as_mut(), "SELECT count(*) FROM t WHERE v = 'new' AND id IN (7, 1000)"), 2);
        connection.execute("DROP TABLE t").unwrap();
    }
}

#[test]
fn a_transaction_goes_back_to_its_savepoint() {
    let Some((_directory, mut connection)) = open() else { return };
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)").unwrap();
    let first = rows(&[1, 2], &["a", "b"]);
    let target = target("t", &first, vec![]);
    connection.begin().unwrap();
    for (part, fits) in [(first, true), (rows(&[3, 1], &["c", "d"]), false), (rows(&[3], &["c"]), true), (rows(&[1], &["d"]), false)] {
        connection.execute("SAVEPOINT tidemill").unwrap();
        match connection.append(&target, &part) {
            Ok(()) => assert!(fits),
            Err(error) => {
                assert!(!fits && error.kind == DbErrorKind::Data, "{error}");
                connection.execute("ROLLBACK TO SAVEPOINT tidemill").unwrap();
            }
        }
        connection.execute("RELEASE SAVEPOINT tidemill").unwrap();
    }
    connection.commit().unwrap();
    assert_eq!(number(connection.as_mut(), "SELECT sum(id)::BIGINT * 10 + count(*) FROM t"), 63);
}

#[test]
fn a_transaction_that_failed_is_not_committed() {
    let Some((_directory, mut connection)) = open() else { return };
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)").unwrap();
    let good = rows(&[1], &["a"]);
    let target = target("t", &good, vec![]);
    connection.begin().unwrap();
    connection.append(&target, &good).unwrap();
    assert_eq!(connection.append(&target, &good).unwrap_err().kind, DbErrorKind::Data);
    assert_eq!(connection.commit().unwrap_err().kind, DbErrorKind::Retry);
    connection.rollback().unwrap();
    connection.rollback().unwrap();
    assert_eq!(number(connection.as_mut(), "SELECT count(*) FROM t"), 0);
}

#[test]
fn rows_are_found_by_key() {
    let Some((_directory, mut connection)) = open() else { return };
    connection.execute("CREATE TABLE t AS SELECT i AS id, 'v' || i % 10 AS v FROM range(1000) r(i)").unwrap();
    let all = rows(&[], &[]);
    let target = target("t", &all, vec![0]);
    let mut found = |ids: Vec<i64>, columns: &[usize]| {
        let texts: Vec<String> = ids.iter().map(|i| format!("v{}", i % 10)).collect();
        let keys = rows(&ids, &texts.iter().map(String::as_str).collect::<Vec<_>>()).project(columns).unwrap();
        connection.look_up(&target, &keys, &all.schema()).unwrap().num_rows()
    };
    assert_eq!(found(vec![], &[0]), 0);
    assert_eq!(found(vec![3, 5000, 999], &[0]), 2);
    assert_eq!(found((900..1100).collect(), &[0]), 100);
    // Both ways again: statements and tables are kept.
    assert_eq!(found((0..64).collect(), &[0]), 64);
    assert_eq!(found((0..200).collect(), &[0]), 200);
    assert_eq!(found((990..1010).collect(), &[0, 1]), 10);
    assert_eq!(found(vec![1, 2], &[1]), 200);
}

#[test]
fn a_file_is_open_once() {
    let Some((directory, first)) = open() else { return };
    let error = connect(&directory, &[("threads", "1")]).err().unwrap();
    assert!(error.message.contains("other parameters"), "{error}");
    let mut second = connect(&directory, &[]).unwrap();
    second.execute("CREATE TABLE t (id BIGINT)").unwrap();
    let columns = second.table_columns("MAIN.T").unwrap().unwrap();
    assert_eq!(columns, [("id".to_string(), "BIGINT".to_string())]);
    assert_eq!(second.table_columns("nothing").unwrap(), None);
    drop((first, second));
    let mut again = connect(&directory, &[("access_mode", "read_only")]).unwrap();
    assert_eq!(number(again.as_mut(), "SELECT count(*) FROM t"), 0);
    let error = again.execute("DROP TABLE t").unwrap_err();
    assert!(error.kind == DbErrorKind::Fatal && error.message.contains("read-only"), "{error}");
    // Keys of lookups need a table of the session.
    let keys = rows(&[1, 2], &["", ""]);
    let target = target("t", &keys, vec![]);
    let wanted = keys.project(&[0]).unwrap().schema();
    let many = rows(&(0..100).collect::<Vec<_>>(), &[""; 100]).project(&[0]).unwrap();
    assert_eq!(again.look_up(&target, &many, &wanted).unwrap().num_rows(), 0);
}

/// A link that led to no file yet was known by its own name, and the file by another: two instances over one file destroy it.
#[test]
fn a_file_behind_a_link_is_open_once() {
    let Some((directory, _other)) = open() else { return };
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::os::unix::fs::symlink(path("file.duckdb"), path("link.duckdb")).unwrap();
    let connect = |name: &str| DuckDriver { path: path(name), parameters: Vec::new() }.connect(Duration::ZERO).unwrap();
    let mut first = connect("link.duckdb");
    first.execute("CREATE TABLE t (id BIGINT)").unwrap();
    let mut second = connect("file.duckdb");
    second.execute("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(number(first.as_mut(), "SELECT count(*) FROM t"), 1);
    // What is committed stands in a log beside the file, where whoever opens it by its own name looks.
    let there = |name: &str| directory.path().join(name).exists();
    assert!(there("file.duckdb.wal") && !there("link.duckdb.wal"));
    drop((first, second));
    std::fs::write(path("link.duckdb.wal"), "").unwrap();
    let error = DuckDriver { path: path("link.duckdb"), parameters: Vec::new() }.connect(Duration::ZERO).err().unwrap();
    assert!(error.message.contains("link.duckdb.wal' holds changes"), "{error}");
}

/// The appender looked for columns by the job's spelling.
#[test]
fn names_of_columns_have_no_case() {
    let Some((_directory, mut connection)) = open() else { return };
    connection.execute("CREATE TABLE t (Id BIGINT, other INTEGER DEFAULT 7, V VARCHAR)").unwrap();
    let rows = rows(&[1, 2], &["a", "b"]);
    let target = target("t", &rows, vec![]);
    connection.begin().unwrap();
    connection.append(&target, &rows).unwrap();
    connection.commit().unwrap();
    assert_eq!(number(connection.as_mut(), "SELECT sum(id + other)::BIGINT FROM t"), 17);
}

/// A scan that was resumed behind 'low' asked for what comes behind it as a text, and passed 'high' over, which comes behind it as
/// a label.
#[test]
fn enums_are_ordered_as_they_are_compared() {
    let Some((_directory, mut connection)) = open() else { return };
    let mut by = |data_type| connection.ordered_by("t", &Field::new("k", data_type, true), "\"k\"".into()).unwrap();
    assert_eq!(by(DataType::Int64), "\"k\"");
    let by = by(DataType::Utf8);
    connection.execute("CREATE TABLE t (k ENUM('low', 'high', 'none'))").unwrap();
    connection.execute("INSERT INTO t VALUES ('none'), ('low'), ('high')").unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true)]));
    let all = query(connection.as_mut(), &format!("SELECT k FROM t ORDER BY {by}"), &schema).unwrap();
    for row in 0..3 {
        let after = all.slice(row, 1);
        let mut rest = Vec::new();
        let sql = format!("SELECT k FROM t WHERE {by} > ? ORDER BY {by}");
        let found = connection.query(&sql, Some(&after), &schema, 10, &mut |rows| {
            rest.push(rows);
            Ok(())
        });
        found.unwrap();
        assert_eq!(concat_batches(&schema, &rest).unwrap(), all.slice(row + 1, 2 - row));
    }
}

#[test]
fn columns_have_types() {
    let check = |data_type: DataType, expect: &str| assert_eq!(column_type(&data_type).as_deref(), Some(expect));
    check(DataType::Decimal128(38, 10), "DECIMAL(38, 10)");
    check(DataType::UInt64, "UBIGINT");
    check(DataType::Timestamp(TimeUnit::Millisecond, None), "TIMESTAMP");
    check(DataType::Timestamp(TimeUnit::Nanosecond, None), "TIMESTAMP_NS");
    check(DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), "TIMESTAMP WITH TIME ZONE");
    check(all_types().schema().field_with_name("row").unwrap().data_type().clone(), "STRUCT(\"a b\" BIGINT, \"s\" VARCHAR)");
    check(all_types().schema().field_with_name("map").unwrap().data_type().clone(), "MAP(VARCHAR, BIGINT)");
    check(DataType::new_list(DataType::Date32, true), "DATE[]");
    let list = Field::new("l", DataType::new_list(DataType::Int32, true), true);
    let error = DuckDialect.column_type(&list, true).unwrap_err();
    assert!(error.message.contains("'l'") && error.message.contains("ARRAY<INT>"), "{error}");
}
