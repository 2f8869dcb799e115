//! Column types: the engine's own subset of Arrow's types, and their SQL names for messages.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};

/// The type of the engine's subset that holds the values of `data_type`: no dictionaries, views,
/// large offsets or unsigned numbers, which Flink SQL lacks. Types without a counterpart
/// (intervals, unions) stay as they are.
pub fn plain_type(data_type: &DataType) -> DataType {
    use DataType::*;
    match data_type {
        UInt8 => Int16,
        UInt16 => Int32,
        UInt32 => Int64,
        UInt64 => Decimal128(20, 0),
        Float16 => Float32,
        LargeUtf8 | Utf8View => Utf8,
        LargeBinary | BinaryView | FixedSizeBinary(_) => Binary,
        Date64 => Date32,
        Time32(_) | Time64(_) => Time32(TimeUnit::Millisecond),
        Timestamp(unit, zone) => {
            let unit = if *unit == TimeUnit::Second { TimeUnit::Millisecond } else { *unit };
            Timestamp(unit, zone.as_ref().map(|_| "UTC".into()))
        }
        Decimal32(precision, scale) | Decimal64(precision, scale) => Decimal128(*precision, *scale),
        Decimal256(precision, scale) if *precision <= 38 => Decimal128(*precision, *scale),
        Dictionary(_, value) => plain_type(value),
        RunEndEncoded(_, value) => plain_type(value.data_type()),
        List(item) | LargeList(item) | FixedSizeList(item, _) | ListView(item) | LargeListView(item) => List(plain_field(item)),
        Struct(fields) => Struct(fields.iter().map(plain_field).collect()),
        Map(entries, sorted) => Map(plain_field(entries), *sorted),
        other => other.clone(),
    }
}

/// The field with [`plain_type`] and without metadata.
pub fn plain_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), plain_type(field.data_type()), field.is_nullable()))
}

/// The name of a type in Flink SQL; Arrow's name if SQL has none.
pub fn type_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::Float32 => "FLOAT",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 => "STRING",
        DataType::Binary => "BYTES",
        DataType::Date32 => "DATE",
        DataType::Time32(_) => "TIME",
        DataType::Timestamp(unit, zone) => {
            let digits = tidemill_block::value::fraction_digits(*unit);
            return format!("TIMESTAMP{}({digits})", if zone.is_some() { "_LTZ" } else { "" });
        }
        DataType::Decimal128(precision, scale) => return format!("DECIMAL({precision}, {scale})"),
        DataType::List(item) => return format!("ARRAY<{}>", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<_> = fields.iter().map(|f| format!("{} {}", f.name(), type_name(f.data_type()))).collect();
            return format!("ROW<{}>", fields.join(", "));
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 => {
                return format!("MAP<{}, {}>", type_name(kv[0].data_type()), type_name(kv[1].data_type()));
            }
            _ => "MAP",
        },
        other => return other.to_string(),
    };
    name.to_string()
}
