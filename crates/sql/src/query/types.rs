//! The types of casts and typed literals, for DataFusion.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::planner::TypePlanner;
use sqlparser::ast::DataType as SqlType;

use crate::types::arrow_type;

/// Flink's types.
#[derive(Debug)]
pub(crate) struct FlinkTypes;

impl TypePlanner for FlinkTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let data_type = arrow_type(sql_type).map_err(|e| DataFusionError::External(Box::new(e)))?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// The type that a stored column has for a computed one: what no Flink type is becomes the nearest
/// that holds it.
pub(crate) fn storable(data_type: &DataType) -> DataType {
    match data_type {
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Utf8View | DataType::LargeUtf8 | DataType::Null => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date64 => DataType::Date32,
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
        DataType::Dictionary(_, value) => storable(value),
        other => other.clone(),
    }
}
