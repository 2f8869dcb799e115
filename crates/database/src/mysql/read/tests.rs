//! What the server sends, and what becomes of it.

use arrow::util::display::array_value_to_string;

use super::*;

fn read(value: Value, column_type: ColumnType, data_type: DataType) -> Result<String, String> {
    let schema: SchemaRef = Arc::new(arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new("c", data_type, true)]));
    let mut columns = Columns::new(&schema).unwrap();
    let column = Column::new(column_type).with_decimals(6);
    columns.push(&[Some(value)], &[column]).map_err(|e| e.message)?;
    let batch = columns.take().map_err(|e| e.message)?;
    Ok(array_value_to_string(batch.column(0), 0).unwrap())
}

fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

#[test]
fn values_go_into_the_types_asked_for() {
    use ColumnType::*;
    #[track_caller]
    fn check(value: Value, column_type: ColumnType, data_type: DataType, expect: &str) {
        assert_eq!(read(value, column_type, data_type).as_deref(), Ok(expect));
    }
    check(Value::Int(1), MYSQL_TYPE_TINY, DataType::Boolean, "true");
    check(Value::Bytes(vec![0]), MYSQL_TYPE_BIT, DataType::Boolean, "false");
    check(Value::Bytes(vec![1, 2]), MYSQL_TYPE_BIT, DataType::Int32, "258");
    check(Value::Int(-128), MYSQL_TYPE_TINY, DataType::Int8, "-128");
    check(Value::UInt(u64::MAX), MYSQL_TYPE_LONGLONG, DataType::Decimal128(20, 0), "18446744073709551615");
    check(Value::Float(1.1), MYSQL_TYPE_FLOAT, DataType::Float32, "1.1");
    check(Value::Float(0.5), MYSQL_TYPE_FLOAT, DataType::Float64, "0.5");
    check(bytes("12.500"), MYSQL_TYPE_NEWDECIMAL, DataType::Decimal128(10, 2), "12.50");
    check(bytes("-0.1"), MYSQL_TYPE_NEWDECIMAL, DataType::Float64, "-0.1");
    check(bytes("0.10000000000000000000"), MYSQL_TYPE_NEWDECIMAL, DataType::Float64, "0.1");
    check(bytes("7.00"), MYSQL_TYPE_NEWDECIMAL, DataType::Int32, "7");
    check(bytes("häß😀"), MYSQL_TYPE_VAR_STRING, DataType::Utf8, "häß😀");
    check(Value::Int(5), MYSQL_TYPE_LONG, DataType::Utf8, "5");
    check(Value::Date(2024, 2, 29, 0, 0, 0, 0), MYSQL_TYPE_DATE, DataType::Date32, "2024-02-29");
    check(Value::Date(2024, 2, 29, 0, 0, 0, 0), MYSQL_TYPE_DATE, DataType::Utf8, "2024-02-29");
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    check(Value::Date(1969, 12, 31, 23, 59, 59, 999_000), MYSQL_TYPE_DATETIME, millis, "1969-12-31T23:59:59.999");
    check(Value::Time(false, 0, 23, 59, 59, 999_000), MYSQL_TYPE_TIME, DataType::Time32(TimeUnit::Millisecond), "23:59:59.999");
    check(bytes("[1,\n null]"), MYSQL_TYPE_JSON, DataType::new_list(DataType::Int32, true), "[1, ]");
}

#[test]
fn what_does_not_fit_is_refused_with_column_and_value() {
    use ColumnType::*;
    #[track_caller]
    fn check(value: Value, column_type: ColumnType, data_type: DataType, expect: &str) {
        let error = read(value, column_type, data_type).unwrap_err();
        assert!(error.starts_with("column 'c': ") && error.contains(expect), "{error}");
    }
    check(Value::Int(128), MYSQL_TYPE_SHORT, DataType::Int8, "128 does not fit TINYINT");
    check(Value::Int(2), MYSQL_TYPE_TINY, DataType::Boolean, "2 does not fit BOOLEAN");
    check(Value::UInt(u64::MAX), MYSQL_TYPE_LONGLONG, DataType::Int64, "18446744073709551615 does not fit BIGINT");
    check(Value::Double(0.1), MYSQL_TYPE_DOUBLE, DataType::Float32, "declare DOUBLE");
    check(bytes("12.345"), MYSQL_TYPE_NEWDECIMAL, DataType::Decimal128(10, 2), "12.345 does not fit DECIMAL(10, 2)");
    check(bytes("12345678901234567.8"), MYSQL_TYPE_NEWDECIMAL, DataType::Float64, "declare DECIMAL");
    check(Value::Bytes(vec![0xff]), MYSQL_TYPE_BLOB, DataType::Utf8, "declare BYTES");
    check(Value::Date(0, 0, 0, 0, 0, 0, 0), MYSQL_TYPE_DATE, DataType::Date32, "0000-00-00 does not fit DATE");
    check(Value::Date(2024, 1, 1, 1, 0, 0, 0), MYSQL_TYPE_DATETIME, DataType::Date32, "declare TIMESTAMP");
    let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
    check(Value::Date(2024, 1, 1, 0, 0, 0, 1), MYSQL_TYPE_DATETIME, millis, "declare TIMESTAMP(6)");
    let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
    check(Value::Date(9999, 1, 1, 0, 0, 0, 0), MYSQL_TYPE_DATETIME, nanos, "1677");
    check(Value::Time(true, 34, 22, 59, 59, 0), MYSQL_TYPE_TIME, DataType::Time32(TimeUnit::Millisecond), "-838:59:59");
    check(bytes("[\"x\"]"), MYSQL_TYPE_JSON, DataType::new_list(DataType::Int32, true), "[\"x\"]");
}

#[test]
fn null_goes_only_where_it_may() {
    let fields = vec![arrow::datatypes::Field::new("a", DataType::Int32, true), arrow::datatypes::Field::new("b", DataType::Int32, false)];
    let schema: SchemaRef = Arc::new(arrow::datatypes::Schema::new(fields));
    let mut columns = Columns::new(&schema).unwrap();
    let described = [Column::new(ColumnType::MYSQL_TYPE_LONG), Column::new(ColumnType::MYSQL_TYPE_LONG)];
    columns.push(&[Some(Value::NULL), Some(Value::Int(1))], &described).unwrap();
    let error = columns.push(&[Some(Value::Int(1)), Some(Value::NULL)], &described).unwrap_err();
    assert_eq!(error, DbError::data("column 'b' is NULL and declared NOT NULL"));
    assert!(columns.push(&[None], &described).is_err());
}
