//! Avro schemas of tables, as Flink derives them, and what is asked of schemas from elsewhere.

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use serde_json::{Value, json};

use crate::FormatError;
use crate::types::type_name;

/// The name that Flink gives the record of a table.
const NAMESPACE: &str = "org.apache.flink.avro.generated";
const RECORD: &str = "record";

/// The Avro schema of rows with these columns, as JSON. `legacy`: a TIMESTAMP is a `timestamp-…`, as Flink
/// has it by default, and not a `local-timestamp-…`.
///
/// # Errors
/// A column whose type or name Avro lacks.
pub(crate) fn schema_json(schema: &SchemaRef, legacy: bool) -> Result<String, FormatError> {
    let mut record = record(RECORD, "", schema.fields().iter().map(|f| f.as_ref()), legacy)?;
    record["namespace"] = NAMESPACE.into();
    Ok(record.to_string())
}

/// The names of a record's fields, in order.
///
/// # Errors
/// What is no schema of a record.
pub(crate) fn names(schema: &str) -> Result<Vec<String>, FormatError> {
    let wrong = |why: &str| FormatError::data(format!("the Avro schema {why}: {}", schema.chars().take(200).collect::<String>()));
    let json: Value = serde_json::from_str(schema).map_err(|e| wrong(&format!("is not JSON ({e})")))?;
    let record = json["type"] == "record";
    let fields = json["fields"].as_array().filter(|_| record).ok_or_else(|| wrong("is not one of a record"))?;
    fields.iter().map(|f| f["name"].as_str().map(str::to_string).ok_or_else(|| wrong("has a field without a name"))).collect()
}

fn record<'f>(name: &str, path: &str, fields: impl Iterator<Item = &'f Field>, legacy: bool) -> Result<Value, FormatError> {
    let fields = fields
        .map(|field| {
            let path = if path.is_empty() { field.name().clone() } else { format!("{path}.{}", field.name()) };
            let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
            if !field.name().starts_with(letter) || !field.name().chars().all(|c| letter(c) || c.is_ascii_digit()) {
                return Err(FormatError::unsupported(format!(
                    "column '{path}': a name in Avro is made of letters, digits and '_'; give the column another name"
                )));
            }
            let value = nullable(&path, &format!("{name}_{}", field.name()), field, legacy)?;
            Ok(match field.is_nullable() {
                true => json!({ "name": field.name(), "type": value, "default": null }),
                false => json!({ "name": field.name(), "type": value }),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "type": "record", "name": name, "fields": fields }))
}

fn nullable(path: &str, name: &str, field: &Field, legacy: bool) -> Result<Value, FormatError> {
    let value = value(path, name, field.data_type(), legacy)?;
    Ok(if field.is_nullable() { json!(["null", value]) } else { value })
}

fn value(path: &str, name: &str, data_type: &DataType, legacy: bool) -> Result<Value, FormatError> {
    Ok(match data_type {
        DataType::Null => json!("null"),
        DataType::Boolean => json!("boolean"),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => json!("int"),
        DataType::Int64 => json!("long"),
        DataType::Float32 => json!("float"),
        DataType::Float64 => json!("double"),
        DataType::Utf8 => json!("string"),
        DataType::Binary => json!("bytes"),
        DataType::Date32 => json!({ "type": "int", "logicalType": "date" }),
        DataType::Time32(TimeUnit::Millisecond) => json!({ "type": "int", "logicalType": "time-millis" }),
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            json!({ "type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale })
        }
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second | TimeUnit::Millisecond => "millis",
                TimeUnit::Microsecond => "micros",
                TimeUnit::Nanosecond => {
                    return Err(FormatError::unsupported(format!(
                        "column '{path}': the avro format has no {}; declare it with a precision of 6 at most",
                        type_name(data_type)
                    )));
                }
            };
            let local = if zone.is_none() && !legacy { "local-" } else { "" };
            json!({ "type": "long", "logicalType": format!("{local}timestamp-{digits}") })
        }
        DataType::Struct(fields) => record(name, path, fields.iter().map(|f| f.as_ref()), legacy)?,
        DataType::List(item) => json!({ "type": "array", "items": nullable(&format!("{path}[]"), name, item, legacy)? }),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 && kv[0].data_type() == &DataType::Utf8 => {
                json!({ "type": "map", "values": nullable(&format!("{path}[]"), name, &kv[1], legacy)? })
            }
            _ => return Err(FormatError::unsupported(format!("column '{path}': the avro format needs STRING keys in a MAP"))),
        },
        other => return Err(FormatError::unsupported(format!("column '{path}': the avro format has no {}", type_name(other)))),
    })
}
