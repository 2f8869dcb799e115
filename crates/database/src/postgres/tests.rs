//! What goes over the wire, without a server: rows written for `COPY` are read back as the rows of a `COPY`,
//! which have the same form; and the SQL that is made.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray, Time32MillisecondArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};

use super::decode::{CopyStream, Reader, Rows};
use super::encode::CopyRows;
use super::prepare::{column, plain};
use super::table::{Described, Table, TableColumn};
use super::types::{Form, PostgresDialect, Shape};
use super::{numeric, wire::Wire};
use crate::driver::{DbError, DbErrorKind, Dialect, Target};
use crate::types::{create_table, marks};

/// A timestamp that is infinitely late, as the server sends it.
static INFINITY: [u8; 8] = i64::MAX.to_be_bytes();

fn shape(form: Form) -> Shape {
    Shape { form, element: None, modifier: -1 }
}

/// Writes a column as a type of PostgreSQL and reads it back, in pieces cut anywhere.
fn round(array: ArrayRef, shape: Shape, declared: &str) -> Result<ArrayRef, DbError> {
    round_as(array.clone(), shape, declared, array.data_type())
}

fn round_as(array: ArrayRef, shape: Shape, declared: &str, wanted: &DataType) -> Result<ArrayRef, DbError> {
    let field = Field::new("c", wanted.clone(), true);
    let array = plain(&array)?;
    let mut copy = CopyRows::new(vec![column("c", &array, shape, declared)?], array.len());
    let mut bytes = Vec::new();
    while let Some(piece) = copy.piece(100) {
        bytes.extend(piece);
    }
    let mut rows = Rows::new(Arc::new(Schema::new(vec![field.clone()])), vec![Reader::new(&field, shape, declared)?], 3);
    let (mut stream, mut parts) = (CopyStream::default(), Vec::new());
    for piece in bytes.chunks(7) {
        stream.feed(piece, &mut rows, &mut |batch| {
            parts.push(batch);
            Ok(())
        })?;
    }
    if !rows.is_empty() {
        parts.push(rows.take()?);
    }
    assert!(parts.iter().all(|p| p.num_rows() <= 3));
    let schema = parts[0].schema();
    Ok(arrow::compute::concat_batches(&schema, &parts)?.column(0).clone())
}

#[track_caller]
fn same(array: impl Array + 'static, shape: Shape, declared: &str) {
    let array: ArrayRef = Arc::new(array);
    let back = round(array.clone(), shape, declared).unwrap_or_else(|e| panic!("{declared}: {e}"));
    assert_eq!(back.as_ref(), array.as_ref(), "{declared}");
}

#[test]
fn values_come_back() {
    same(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]), shape(Form::Bool), "boolean");
    same(Int8Array::from(vec![Some(i8::MIN), None, Some(i8::MAX)]), shape(Form::Int2), "smallint");
    same(Int16Array::from(vec![Some(i16::MIN), None, Some(i16::MAX)]), shape(Form::Int2), "smallint");
    same(Int32Array::from(vec![Some(i32::MIN), None, Some(i32::MAX)]), shape(Form::Int4), "integer");
    same(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX), Some(0), Some(-1)]), shape(Form::Int8), "bigint");
    same(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX), Some(0)]), shape(Form::Numeric), "numeric");
    same(Float32Array::from(vec![Some(f32::MIN_POSITIVE), None, Some(f32::INFINITY), Some(-0.0)]), shape(Form::Float4), "real");
    same(Float64Array::from(vec![Some(f64::MAX), None, Some(f64::NEG_INFINITY), Some(1e-320)]), shape(Form::Float8), "double precision");
    same(StringArray::from(vec![Some(""), None, Some("𝄞 ä\n"), Some("'\"\\")]), shape(Form::Text), "text");
    let padded: ArrayRef = Arc::new(StringArray::from(vec![Some(" ab  "), None, Some("    ")]));
    let back = round(padded, shape(Form::Char), "character(5)").unwrap();
    assert_eq!(back.as_string::<i32>(), &StringArray::from(vec![Some(" ab"), None, Some("")]));
    same(BinaryArray::from(vec![Some(&b""[..]), None, Some(&b"\0\xFF"[..])]), shape(Form::Bytea), "bytea");
    same(Date32Array::from(vec![Some(0), None, Some(-2_440_588), Some(2_145_042_905)]), shape(Form::Date), "date");
    same(Time32MillisecondArray::from(vec![Some(0), None, Some(86_399_999)]), shape(Form::Time), "time without time zone");
    let micros = vec![Some(0), None, Some(-210_866_803_200_000_000), Some(i64::MAX)];
    same(TimestampMicrosecondArray::from(micros.clone()), shape(Form::Timestamp), "timestamp without time zone");
    same(TimestampMicrosecondArray::from(micros).with_timezone("UTC"), shape(Form::TimestampTz), "timestamp with time zone");
    same(TimestampMillisecondArray::from(vec![Some(-1), None, Some(1)]), shape(Form::Timestamp), "timestamp without time zone");
    let nanos = TimestampNanosecondArray::from(vec![Some(-1000), None, Some(i64::MAX / 1000 * 1000)]);
    same(nanos, shape(Form::Timestamp), "timestamp without time zone");
    same(StringArray::from(vec![Some("6f0e1f2a-0000-4000-8000-00000000000f"), None]), shape(Form::Uuid), "uuid");
    same(StringArray::from(vec![Some("1"), None, Some(""), Some("1010101011110000111")]), shape(Form::Bit), "bit varying");
    same(StringArray::from(vec![Some("{\"a\": 1}"), None, Some("null")]), shape(Form::Jsonb), "jsonb");
}

#[test]
fn decimals_come_back() {
    let extremes = vec![Some(10i128.pow(38) - 1), Some(1 - 10i128.pow(38)), Some(0), None, Some(1), Some(-10_000), Some(123_456_789)];
    for scale in [0, 1, 2, 3, 4, 5, 19, 37, 38] {
        let array = Decimal128Array::from(extremes.clone()).with_precision_and_scale(38, scale).unwrap();
        same(array, shape(Form::Numeric), "numeric");
    }
    let small: Vec<_> = (-300..300).map(|n| Some(n * 37)).collect();
    same(Decimal128Array::from(small).with_precision_and_scale(9, 3).unwrap(), shape(Form::Numeric), "numeric(9,3)");
}

#[test]
fn values_with_parts_come_back() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(-3)])]);
    same(list.clone(), Shape { form: Form::Int4, element: Some(23), modifier: -1 }, "integer[]");
    // The same, cut out of a longer column.
    same(list.slice(1, 3), Shape { form: Form::Int4, element: Some(23), modifier: -1 }, "integer[]");
    same(list, shape(Form::Jsonb), "jsonb");
    let fields = vec![
        (Arc::new(Field::new("a", DataType::Int64, true)), Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef),
        (Arc::new(Field::new("b", DataType::Utf8, true)), Arc::new(StringArray::from(vec![Some("x\ny"), Some("}")])) as ArrayRef),
    ];
    same(StructArray::from(fields), shape(Form::Json), "json");
}

#[test]
fn slices_of_columns_are_written() {
    let text = StringArray::from(vec![Some("cut"), Some("b"), None, Some("d"), Some("off")]).slice(1, 3);
    let back = round(Arc::new(text.clone()), shape(Form::Text), "text").unwrap();
    assert_eq!(back.as_ref(), &text as &dyn Array);
    let bits = BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]).slice(1, 3);
    let back = round(Arc::new(bits.clone()), shape(Form::Bool), "boolean").unwrap();
    assert_eq!(back.as_ref(), &bits as &dyn Array);
}

#[track_caller]
fn refused(array: impl Array + 'static, shape: Shape, declared: &str, say: &[&str]) {
    let error = round(Arc::new(array), shape, declared).expect_err("refused");
    assert_eq!(error.kind, DbErrorKind::Data, "{error}");
    for text in say.iter().chain(&["column 'c'"]) {
        assert!(error.message.contains(text), "{error} lacks {text}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let modified = |form, modifier| Shape { form, element: None, modifier };
    refused(Int64Array::from(vec![1, 32_768]), shape(Form::Int2), "smallint", &["32768"]);
    refused(Int64Array::from(vec![1 << 53, (1 << 53) + 1]), shape(Form::Float8), "double precision", &["9007199254740993"]);
    refused(StringArray::from(vec!["a", "b\0c"]), shape(Form::Text), "text", &["NUL", "'b\\0c'"]);
    refused(StringArray::from(vec!["abc", "abcd"]), modified(Form::Text, 7), "character varying(3)", &["'abcd'", "3 characters"]);
    refused(StringArray::from(vec!["6f0e1f2a"]), shape(Form::Uuid), "uuid", &["6f0e1f2a"]);
    refused(StringArray::from(vec!["012"]), shape(Form::Bit), "bit(3)", &["'012'"]);
    refused(TimestampMicrosecondArray::from(vec![i64::MIN]), shape(Form::Timestamp), "timestamp without time zone", &["4713 BC"]);
    refused(TimestampNanosecondArray::from(vec![1]), shape(Form::Timestamp), "timestamp without time zone", &["microseconds"]);
    refused(TimestampMicrosecondArray::from(vec![1]), modified(Form::Timestamp, 3), "timestamp(3) without time zone", &["fewer digits"]);
    refused(Date32Array::from(vec![i32::MAX]), shape(Form::Date), "date", &["5874897"]);
    // numeric(5, 2) would round the third decimal away.
    let rounded = Decimal128Array::from(vec![12_340, 12_345]).with_precision_and_scale(10, 3).unwrap();
    refused(rounded, modified(Form::Numeric, ((5 << 16) | 2) + 4), "numeric(5,2)", &["12.345", "fewer decimals"]);
    // What stands in the place of a NULL does not count.
    let null = Int64Array::new(vec![1 << 40, 7].into(), Some(vec![false, true].into()));
    assert_eq!(round_as(Arc::new(null), shape(Form::Int2), "smallint", &DataType::Int16).unwrap().null_count(), 1);
}

#[test]
fn what_cannot_be_read_is_named() {
    let array: ArrayRef = Arc::new(Int64Array::from(vec![300]));
    let error = round_as(array.clone(), shape(Form::Int8), "bigint", &DataType::Int8).unwrap_err();
    assert!(error.message.contains("column 'c'") && error.message.contains("300"), "{error}");
    let error = round_as(array, shape(Form::Int8), "bigint", &DataType::Float64).unwrap_err();
    assert_eq!(error.kind, DbErrorKind::Fatal);
    assert!(error.message.contains("declare it BIGINT"), "{error}");
    let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_001]));
    let declared = "timestamp without time zone";
    let error = round_as(micros, shape(Form::Timestamp), declared, &DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap_err();
    assert!(error.message.contains("1970-01-01 00:00:00.001001"), "{error}");
    let field = Field::new("c", DataType::Timestamp(TimeUnit::Microsecond, None), true);
    let reader = Reader::new(&field, shape(Form::Timestamp), declared).unwrap();
    let mut rows = Rows::new(Arc::new(Schema::new(vec![field])), vec![reader], 10);
    let error = rows.push(|_| Ok(Some(&INFINITY))).unwrap_err();
    assert!(error.message.contains("infinity"), "{error}");
}

#[test]
fn numbers_look_as_the_server_sends_them() {
    // What PostgreSQL 15 sends for 12345.67::numeric(10,2): three groups, 1, 2345 and 6700.
    let mut bytes = Vec::new();
    numeric::write(&mut bytes, 1_234_567, 2);
    assert_eq!(bytes, [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x1A, 0x2C]);
    assert_eq!(numeric::show(&bytes), "12345.67");
    assert_eq!(numeric::read(&bytes, 7, 2), Ok(1_234_567));
    assert_eq!(numeric::read(&bytes, 10, 4), Ok(123_456_700));
    assert!(numeric::read(&bytes, 6, 2).unwrap_err().contains("more than 4 digits"));
    assert!(numeric::read(&bytes, 10, 1).unwrap_err().contains("more than 1 decimals"));
    assert!(numeric::read(&[0, 0, 0, 0, 0xC0, 0, 0, 0], 10, 1).is_err());
    let mut small = Vec::new();
    numeric::write(&mut small, -5, 6);
    assert_eq!(numeric::show(&small), "-0.000005");
    assert_eq!(Wire(&small).i16(), Ok(1));
}

/// A column of a table as the catalog would give it.
fn described(name: &str, bare: &str, oid: &str, element: Option<&str>) -> Vec<Option<String>> {
    let text = |t: &str| Some(t.to_string());
    vec![text(name), text(bare), text(bare), text(oid), element.map(str::to_string), text("-1"), text("b"), text("f"), text("t")]
}

#[test]
fn statements_are_made() {
    let rows =
        [described("id", "integer", "23", None), described("At", "inet", "869", None), described("n", "numeric[]", "1700", Some("1700"))];
    let table = Described::of(&rows).unwrap();
    let list = DataType::List(Arc::new(Field::new("item", DataType::Decimal128(10, 2), true)));
    let fields = vec![Field::new("At", DataType::Utf8, true), Field::new("id", DataType::Int64, false), Field::new("n", list, true)];
    let target = Target { table: "s.T".into(), schema: Arc::new(Schema::new(fields)), key: vec![1] };
    let table = Table::new(&target, &table, 4).unwrap();
    assert!(!table.direct, "inet has no binary form here");
    assert_eq!(table.copy, r#"COPY "s"."T" ("At", "id", "n") FROM STDIN (FORMAT binary)"#);
    assert_eq!(
        table.create_stage,
        "CREATE TEMPORARY TABLE IF NOT EXISTS tidemill_stage_4 (c0 text, c1 integer, c2 numeric[]) ON COMMIT DELETE ROWS"
    );
    assert_eq!(
        table.merge,
        "INSERT INTO \"s\".\"T\" (\"At\", \"id\", \"n\") SELECT s.c0::inet, s.c1, s.c2 FROM pg_temp.tidemill_stage_4 AS s \
         ON CONFLICT (\"id\") DO UPDATE SET \"At\" = EXCLUDED.\"At\", \"n\" = EXCLUDED.\"n\""
    );
    assert_eq!(table.delete(&[1]), r#"DELETE FROM "s"."T" WHERE "id" = ANY($1::bigint[])"#);
    assert_eq!(
        table.look_up(&[1, 0], "t.\"n\""),
        "SELECT t.\"n\" FROM \"s\".\"T\" AS t JOIN unnest($1::bigint[], $2::text[]::inet[]) AS k(k0, k1) \
         ON t.\"id\" = k.k0 AND t.\"At\" = k.k1"
    );
    let missing = Target { schema: Arc::new(Schema::new(vec![Field::new("at", DataType::Utf8, true)])), ..target };
    let error = Table::new(&missing, &Described::of(&rows).unwrap(), 0).err().unwrap();
    assert!(error.message.contains("no column \"at\"") && error.message.contains("At"), "{error}");
    assert!(Described::of(&[]).is_none());
}

#[test]
fn columns_are_sent_as_they_are_declared() {
    let column = |declared: &str, form, modifier| TableColumn {
        name: "c".into(),
        declared: declared.into(),
        bare: declared.into(),
        shape: Shape { form, element: None, modifier },
        generated: false,
    };
    assert_eq!(column("numeric(10,2)", Form::Numeric, ((10 << 16) | 2) + 4).shape.numeric(), Some((10, 2)));
    assert_eq!(column("numeric(5,-2)", Form::Numeric, ((5 << 16) | 0x7FE) + 4).shape.numeric(), Some((5, -2)));
    assert_eq!(column("numeric", Form::Numeric, -1).shape.numeric(), None);
    assert_eq!(column("varchar(3)", Form::Text, 7).shape.characters(), Some(3));
    assert_eq!(column("text", Form::Text, -1).shape.characters(), None);
    let sent = column("inet", Form::Other, -1).sent(&DataType::Utf8);
    assert_eq!((sent.name.as_str(), sent.cast, sent.shape), ("text", true, shape(Form::Text)));
    let mut array = column("numeric[]", Form::Numeric, -1);
    array.shape.element = Some(1700);
    assert!(array.sent(&DataType::Utf8).cast, "an array that the job has as STRING");
    let list = DataType::List(Arc::new(Field::new("item", DataType::Decimal128(10, 2), true)));
    assert!(!array.sent(&list).cast);
}

#[test]
fn names_are_quoted_and_types_are_known() {
    assert_eq!(PostgresDialect.quote("s.Ta\"b"), r#""s"."Ta""b""#);
    let of = |t: DataType| PostgresDialect.column_type(&Field::new("c", t, true), false);
    let item = |t: DataType| Arc::new(Field::new("item", t, true));
    assert_eq!(of(DataType::Int8).unwrap(), "SMALLINT");
    assert_eq!(of(DataType::Decimal128(38, 38)).unwrap(), "NUMERIC(38, 38)");
    assert_eq!(of(DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))).unwrap(), "TIMESTAMP(6) WITH TIME ZONE");
    assert_eq!(of(DataType::List(item(DataType::Utf8))).unwrap(), "TEXT[]");
    assert_eq!(of(DataType::List(item(DataType::List(item(DataType::Utf8))))).unwrap(), "JSONB");
    assert!(of(DataType::Duration(TimeUnit::Second)).unwrap_err().message.contains("column 'c'"));
}

#[test]
fn many_rows_in_several_pieces() {
    let ids = Int64Array::from_iter_values(0..5_000);
    let names: StringArray = (0..5_000).map(|n| if n % 7 == 0 { None } else { Some(format!("name {n}")) }).collect();
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("name", DataType::Utf8, true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), Arc::new(names)]).unwrap();
    let columns = vec![
        column("id", batch.column(0), shape(Form::Int8), "bigint").unwrap(),
        column("name", batch.column(1), shape(Form::Text), "text").unwrap(),
    ];
    let mut copy = CopyRows::new(columns, batch.num_rows());
    let readers = vec![
        Reader::new(schema.field(0), shape(Form::Int8), "bigint").unwrap(),
        Reader::new(schema.field(1), shape(Form::Text), "text").unwrap(),
    ];
    let (mut rows, mut stream) = (Rows::new(schema, readers, usize::MAX), CopyStream::default());
    let mut pieces = 0;
    while let Some(piece) = copy.piece(20_000) {
        stream.feed(&piece, &mut rows, &mut |_| Ok(())).unwrap();
        pieces += 1;
    }
    assert!(pieces > 3);
    assert_eq!(rows.take().unwrap(), batch);
}

#[test]
fn a_table_with_a_key_has_room_for_updates() {
    let target = |key| Target { table: "t".into(), schema: Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)])), key };
    let sql = |key| create_table(&PostgresDialect, &target(key)).unwrap();
    assert_eq!(sql(vec![]), "CREATE TABLE IF NOT EXISTS \"t\" (\"a\" BIGINT)");
    assert_eq!(sql(vec![0]), "CREATE TABLE IF NOT EXISTS \"t\" (\"a\" BIGINT NOT NULL, PRIMARY KEY (\"a\")) WITH (fillfactor = 90)");
    assert!(!create_table(&PostgresDialect, &marks()).unwrap().contains("WITH"));
}
