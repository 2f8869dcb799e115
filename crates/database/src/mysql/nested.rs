//! Lists, rows and maps as JSON text, and back.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_block::Block;
use tidemill_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::{Decoder, Encoder, FormatError};

use super::error::shortened;
use crate::driver::DbError;

/// What stands around a value in a line of JSON with the one column `v`.
const BEFORE: &[u8] = b"{\"v\":";
const BEHIND: &[u8] = b"}";

fn options() -> Result<JsonOptions, FormatError> {
    JsonOptions::take(&mut RawOptions::new("", std::iter::empty()))
}

fn schema(data_type: &DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", data_type.clone(), true)]))
}

/// Whether decimals are somewhere in a type: MySQL's JSON would make doubles of them.
pub(super) fn has_decimals(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(..) | DataType::Decimal256(..) => true,
        DataType::List(item) | DataType::Map(item, _) => has_decimals(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| has_decimals(f.data_type())),
        _ => false,
    }
}

/// The values of a nested column as JSON text.
///
/// # Errors
/// A type that JSON cannot express (a map whose keys are not text), with the column's name.
pub(crate) fn to_json(name: &str, array: &ArrayRef) -> Result<ArrayRef, DbError> {
    let named = |e: FormatError| DbError::fatal(format!("column '{name}': {e}"));
    let schema = schema(array.data_type());
    let mut encoder = options().and_then(|o| JsonEncoder::new(&o, &schema)).map_err(named)?;
    let batch = RecordBatch::try_new(schema, vec![array.clone()])?;
    let mut text = Vec::new();
    encoder.encode(&Block::inserts(batch, 0), &mut text).map_err(named)?;
    let mut values = StringBuilder::with_capacity(array.len(), text.len());
    // JSON has no line ends inside of values.
    for (row, line) in text.split(|b| *b == b'\n').take(array.len()).enumerate() {
        let value = line.strip_prefix(BEFORE).and_then(|l| l.strip_suffix(BEHIND)).and_then(|v| std::str::from_utf8(v).ok());
        match value {
            _ if array.is_null(row) => values.append_null(),
            Some(value) => values.append_value(value),
            None => return Err(DbError::fatal(format!("column '{name}': it could not be written as JSON"))),
        }
    }
    Ok(Arc::new(values.finish()))
}

/// The values of a nested column from JSON text.
///
/// # Errors
/// [`Data`](crate::driver::DbErrorKind::Data) with the column's name and the text that is no such value.
pub(crate) fn from_json(name: &str, texts: &StringArray, data_type: &DataType) -> Result<ArrayRef, DbError> {
    let named = |e: FormatError| DbError::fatal(format!("column '{name}': {e}"));
    let schema = schema(data_type);
    let mut decoder = options().and_then(|o| JsonDecoder::new(&o, &schema, &[0])).map_err(named)?;
    let mut lines = Vec::with_capacity(texts.values().len() + 8 * texts.len());
    for text in texts.iter() {
        lines.extend_from_slice(BEFORE);
        // A line end can only be blank space between values.
        lines.extend(text.unwrap_or("null").bytes().map(|b| if b == b'\n' { b' ' } else { b }));
        lines.extend_from_slice(BEHIND);
        lines.push(b'\n');
    }
    decoder.push(&lines);
    decoder.finish();
    let mut pieces: Vec<ArrayRef> = Vec::new();
    while let Some(decoded) = decoder.next(texts.len().max(1)).map_err(named)? {
        if let Some(bad) = decoded.bad.first() {
            let text = String::from_utf8_lossy(&bad.raw).into_owned();
            return Err(DbError::data(format!("column '{name}': {} is no such JSON: {}", shortened(&text), bad.reason)));
        }
        pieces.push(decoded.batch.column(0).clone());
    }
    let pieces: Vec<&dyn Array> = pieces.iter().map(|p| p.as_ref()).collect();
    let all = if pieces.is_empty() { arrow::array::new_empty_array(data_type) } else { arrow::compute::concat(&pieces)? };
    if all.len() != texts.len() {
        return Err(DbError::data(format!("column '{name}': a text holds more or less than one JSON value")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::ListArray;
    use arrow::datatypes::Int32Type;

    #[test]
    fn lists_come_back() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        let array: ArrayRef = Arc::new(lists);
        let texts = to_json("c", &array).unwrap();
        let expect: StringArray = vec![Some("[1,null]"), None, Some("[]")].into();
        assert_eq!(texts.as_ref(), &expect as &dyn Array);
        assert_eq!(&from_json("c", &expect, array.data_type()).unwrap(), &array);
        let error = from_json("c", &vec![Some("[1,\"x\"]")].into(), array.data_type()).unwrap_err();
        assert!(error.message.starts_with("column 'c': "), "{}", error.message);
    }

    #[test]
    fn decimals_are_found() {
        let decimal = DataType::new_list(DataType::Decimal128(10, 2), true);
        assert!(has_decimals(&decimal) && !has_decimals(&DataType::new_list(DataType::Utf8, true)));
    }
}
