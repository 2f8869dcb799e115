//! Values that stay what they are, and those that would not.

use arrow::array::{
    Date32Array, Decimal128Array, Float64Array, Int8Array, Int32Array, Int64Array, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::TimeUnit;

use super::*;

#[track_caller]
fn check(array: impl Array + 'static, expect: impl Array + 'static) {
    let array: ArrayRef = Arc::new(array);
    let expect: ArrayRef = Arc::new(expect);
    assert_eq!(convert(&array, expect.data_type()).unwrap().as_ref(), expect.as_ref());
}

#[track_caller]
fn refused(array: impl Array + 'static, wanted: &DataType, why: &str) {
    let array: ArrayRef = Arc::new(array);
    match convert(&array, wanted) {
        Err(Refusal::Value(said)) => assert!(!why.is_empty() && said.contains(why), "{said}"),
        Err(Refusal::Types) => assert_eq!(why, ""),
        Ok(made) => panic!("{made:?}"),
    }
}

fn decimal(values: Vec<i128>, precision: u8, scale: i8) -> Decimal128Array {
    Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()
}

#[test]
fn values_stay_what_they_are() {
    check(Int64Array::from(vec![Some(5), None]), Int8Array::from(vec![Some(5), None]));
    check(Int32Array::from(vec![7]), decimal(vec![700], 10, 2));
    check(decimal(vec![700, -100], 10, 2), Int32Array::from(vec![7, -1]));
    check(decimal(vec![1230], 10, 3), decimal(vec![123], 5, 2));
    check(UInt64Array::from(vec![u64::MAX]), decimal(vec![u64::MAX.into()], 20, 0));
    check(Int64Array::from(vec![1 << 53]), Float64Array::from(vec![9_007_199_254_740_992.0]));
    check(TimestampMillisecondArray::from(vec![-1]), TimestampMicrosecondArray::from(vec![-1000]));
    check(TimestampMicrosecondArray::from(vec![-1000]), TimestampMillisecondArray::from(vec![-1]));
    check(TimestampMicrosecondArray::from(vec![1000]).with_timezone("UTC"), TimestampMillisecondArray::from(vec![1]).with_timezone("UTC"));
    check(Int64Array::from(vec![7]), StringArray::from(vec!["7"]));
}

#[test]
fn values_that_would_change_are_named() {
    refused(Int64Array::from(vec![1, 300]), &DataType::Int8, "300");
    refused(decimal(vec![123], 10, 2), &DataType::Int64, "1.23");
    refused(decimal(vec![1234], 10, 3), &DataType::Decimal128(10, 2), "1.234");
    refused(Int64Array::from(vec![123_456]), &DataType::Decimal128(5, 2), "123456");
    refused(Float64Array::from(vec![0.1]), &DataType::Float32, "0.1");
    refused(Int64Array::from(vec![0, i64::MAX]), &DataType::Float64, "9223372036854775807");
    refused(TimestampMicrosecondArray::from(vec![1]), &DataType::Timestamp(TimeUnit::Millisecond, None), "00:00:00.000001");
    refused(TimestampMillisecondArray::from(vec![i64::MAX]), &DataType::Timestamp(TimeUnit::Microsecond, None), "verflow");
    refused(Time64MicrosecondArray::from(vec![86_400_000_000]), &DataType::Time32(TimeUnit::Millisecond), "24:00:00");
    refused(Time64MicrosecondArray::from(vec![1]), &DataType::Time32(TimeUnit::Millisecond), "00:00:00.000001");
    refused(StringArray::from(vec!["7"]), &DataType::Int64, "");
    refused(TimestampMillisecondArray::from(vec![0]), &DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), "");
}

#[test]
fn infinities_are_found() {
    assert_eq!(beyond(&Date32Array::from(vec![Some(0), None, Some(i32::MAX)])), Some(2));
    assert_eq!(beyond(&TimestampMicrosecondArray::from(vec![0, -i64::MAX])), Some(1));
    assert_eq!(beyond(&TimestampMicrosecondArray::from(vec![i64::MAX - 1])), None);
    assert_eq!(beyond(&Int64Array::from(vec![i64::MAX])), None);
}
