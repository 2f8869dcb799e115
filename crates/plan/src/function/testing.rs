//! Calls of functions in tests: arguments as SQL literals, results as text.
//!
//! Each check is made with constant arguments and again with each argument as a column, so that a
//! kernel that mixes up the two is found.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};
use tidemill_block::value::{parse_date, parse_decimal, parse_timestamp};

use super::define::{Def, Function, Session};
use super::zone::Zone;
use super::{SessionSettings, scalar_functions};

fn literal(text: &str) -> ScalarValue {
    let inside = |prefix: &str| text.strip_prefix(prefix).and_then(|t| t.strip_suffix('\''));
    let ms = |t: &str| Some(parse_timestamp(t.as_bytes(), TimeUnit::Millisecond).expect("a timestamp"));
    match text {
        "NULL" => return ScalarValue::Null,
        "TRUE" => return ScalarValue::Boolean(Some(true)),
        "FALSE" => return ScalarValue::Boolean(Some(false)),
        _ => {}
    }
    if let Some(t) = inside("TIMESTAMP '") {
        ScalarValue::TimestampMillisecond(ms(t), None)
    } else if let Some(t) = inside("LTZ '") {
        ScalarValue::TimestampMillisecond(ms(t), Some("UTC".into()))
    } else if let Some(t) = inside("DATE '") {
        ScalarValue::Date32(parse_date(t.as_bytes()))
    } else if let Some(t) = inside("X'") {
        let byte = |i| u8::from_str_radix(&t[i..i + 2], 16).expect("hexadecimal");
        ScalarValue::Binary(Some((0..t.len()).step_by(2).map(byte).collect()))
    } else if let Some(t) = inside("'") {
        ScalarValue::Utf8(Some(t.to_string()))
    } else if text.contains('e') {
        ScalarValue::Float64(Some(text.parse().expect("a double")))
    } else if let Some((_, fraction)) = text.split_once('.') {
        let scale = fraction.len() as i8;
        ScalarValue::Decimal128(parse_decimal(text.as_bytes(), 10, scale), 10, scale)
    } else {
        text.parse().map_or_else(|_| ScalarValue::Int64(Some(text.parse().expect("an integer"))), |v| ScalarValue::Int32(Some(v)))
    }
}

/// The function of this name in a session of this time zone.
pub(super) fn function(zone: &str, name: &str) -> Arc<ScalarUDF> {
    let all = scalar_functions(&SessionSettings { time_zone: zone.to_string() });
    let found = all.into_iter().rev().find(|f| f.name() == name || f.aliases().iter().any(|a| a == name));
    found.unwrap_or_else(|| panic!("no function {name}"))
}

/// Plans and makes a call the way DataFusion does; `column` is the argument that is no constant.
fn call(function: &ScalarUDF, args: &[ScalarValue], rows: usize, column: Option<usize>) -> Result<ColumnarValue> {
    let types: Vec<DataType> = args.iter().map(ScalarValue::data_type).collect();
    let wanted = function.coerce_types(&types)?;
    let args = args.iter().zip(&wanted).map(|(v, t)| v.cast_to(t)).collect::<Result<Vec<_>>>()?;
    let fields: Vec<FieldRef> = wanted.iter().map(|t| Arc::new(Field::new("x", t.clone(), true))).collect();
    let constants: Vec<Option<&ScalarValue>> = args.iter().enumerate().map(|(i, v)| (Some(i) != column).then_some(v)).collect();
    let return_field = function.return_field_from_args(ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &constants })?;
    let values = args.iter().enumerate().map(|(i, v)| {
        if Some(i) == column { v.to_array_of_size(rows).map(ColumnarValue::Array) } else { Ok(ColumnarValue::Scalar(v.clone())) }
    });
    let args = ScalarFunctionArgs {
        args: values.collect::<Result<_>>()?,
        arg_fields: fields,
        number_rows: rows,
        return_field: return_field.clone(),
        config_options: Arc::default(),
    };
    let result = function.invoke_with_args(args)?;
    assert_eq!(result.data_type(), *return_field.data_type(), "type of {}", function.name());
    Ok(result)
}

fn texts(value: ColumnarValue, rows: usize, zone: &str) -> Vec<String> {
    let array = value.into_array(rows).expect("an array");
    assert_eq!(array.len(), rows);
    let texts = super::cast::to_text(&array, Zone::parse(zone).expect("a zone")).expect("every type has a text form");
    texts.as_string::<i32>().iter().map(|t| t.unwrap_or("NULL").to_string()).collect()
}

/// Checks a call in a session in UTC.
#[track_caller]
pub(super) fn check(name: &str, args: &[&str], expect: &str) {
    check_in("UTC", name, args, expect);
}

/// Checks a call in a session of this time zone.
#[track_caller]
pub(super) fn check_in(zone: &str, name: &str, args: &[&str], expect: &str) {
    check_one(zone, name, args, None, expect).unwrap_or_else(|e| panic!("{name}: {e}"));
    for column in 0..args.len() {
        if let Err(e) = check_one(zone, name, args, Some(column), expect) {
            // Units, types and wrappers have to be literals.
            assert!(e.contains("literal"), "{name} with a column at {column}: {e}");
        }
    }
}

/// Checks a call with constant arguments but for the one at `column`, for functions whose result has
/// another type then. The error is that of the call.
#[track_caller]
pub(super) fn check_one(zone: &str, name: &str, args: &[&str], column: Option<usize>, expect: &str) -> std::result::Result<(), String> {
    let args: Vec<ScalarValue> = args.iter().map(|a| literal(a)).collect();
    let value = call(&function(zone, name), &args, 3, column).map_err(|e| e.to_string())?;
    assert_eq!(texts(value, 3, zone), [expect; 3], "{name} with the column {column:?}");
    Ok(())
}

/// Checks a call, in UTC, of a function that has no name of its own in SQL.
#[track_caller]
pub(super) fn check_def(def: Def, args: &[&str], expect: &str) {
    let session = Session { time_zone: "UTC".into(), zone: Zone::parse("UTC") };
    let function = ScalarUDF::from(Function::new(def, Arc::new(session)));
    let args: Vec<ScalarValue> = args.iter().map(|a| literal(a)).collect();
    for column in (0..args.len()).map(Some).chain([None]) {
        let value = call(&function, &args, 3, column).unwrap_or_else(|e| panic!("{}: {e}", def.name));
        assert_eq!(texts(value, 3, "UTC"), [expect; 3], "{} of {args:?} with the column {column:?}", def.name);
    }
}

/// The message with which a call fails, whether planned or made.
#[track_caller]
pub(super) fn failure(name: &str, args: &[&str]) -> String {
    let args: Vec<ScalarValue> = args.iter().map(|a| literal(a)).collect();
    call(&function("UTC", name), &args, 3, None).expect_err("the call should fail").to_string()
}

/// The values of a function of one argument over a column.
pub(super) fn on_column(name: &str, column: &ArrayRef) -> String {
    let function = function("UTC", name);
    let fields: Vec<FieldRef> = vec![Arc::new(Field::new("x", column.data_type().clone(), true))];
    let args = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &[None] };
    let return_field = function.return_field_from_args(args).expect("a type");
    let args = ScalarFunctionArgs {
        args: vec![ColumnarValue::Array(column.clone())],
        arg_fields: fields,
        number_rows: column.len(),
        return_field,
        config_options: Arc::default(),
    };
    texts(function.invoke_with_args(args).expect("values"), column.len(), "UTC").join(", ")
}

/// The values of a function without arguments.
pub(super) fn column(name: &str, rows: usize) -> Vec<String> {
    texts(call(&function("UTC", name), &[], rows, None).expect("a value"), rows, "UTC")
}

/// Whether a function without arguments gives one value for all rows.
pub(super) fn constants(name: &str, rows: usize) -> bool {
    matches!(call(&function("UTC", name), &[], rows, None), Ok(ColumnarValue::Scalar(_)))
}
