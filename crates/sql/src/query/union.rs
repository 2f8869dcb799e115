//! Tables put together by the names of their columns, as `union_by_name` asks for: what a table lacks is NULL in
//! its rows, and a column of several types gets one that holds them all.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{LogicalPlan, LogicalPlanBuilder, Union, cast, ident, lit};
use tidemill_plan::Table;

/// The rows of all tables. Columns stand in the order in which they are seen first.
///
/// # Errors
/// A table whose own plan is wrong.
pub(crate) fn by_name(tables: &[Arc<Table>]) -> Result<LogicalPlan> {
    let mut columns: Vec<(String, DataType)> = Vec::new();
    for column in tables.iter().flat_map(|table| &table.columns) {
        match columns.iter_mut().find(|(name, _)| *name == column.name) {
            Some((_, data_type)) => *data_type = common(data_type, &column.data_type),
            None => columns.push((column.name.clone(), column.data_type.clone())),
        }
    }
    let mut inputs = Vec::with_capacity(tables.len());
    for table in tables {
        let projected = columns.iter().map(|(name, to)| {
            let value = match table.columns.iter().find(|column| column.name == *name) {
                Some(column) if column.data_type == *to => ident(name.as_str()),
                Some(_) => cast(ident(name.as_str()), to.clone()),
                None => cast(lit(ScalarValue::Null), to.clone()),
            };
            value.alias(name.as_str())
        });
        inputs.push(Arc::new(LogicalPlanBuilder::from(table.scan()?).project(projected)?.build()?));
    }
    Ok(LogicalPlan::Union(Union::try_new(inputs)?))
}

/// A type that holds the values of two: the wider one of two of a kind, else text.
fn common(a: &DataType, b: &DataType) -> DataType {
    use DataType::*;
    let whole = |t: &DataType| matches!(t, Int8 | Int16 | Int32 | Int64);
    match (a, b) {
        (a, b) if a == b => a.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (a, b) if whole(a) && whole(b) => Int64,
        (a, b) if a.is_floating() && (b.is_floating() || whole(b)) => Float64,
        (a, b) if whole(a) && b.is_floating() => Float64,
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Timestamp(*unit, None),
        (Timestamp(a, zone), Timestamp(b, other)) if zone == other => Timestamp(finer(*a, *b), zone.clone()),
        _ => Utf8,
    }
}

fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    let digits = |unit: TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    if digits(a) >= digits(b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_plan::{Column, ColumnKind};

    fn table(name: &str, columns: &[(&str, DataType)]) -> Arc<Table> {
        let column = |(name, data_type): &(&str, DataType)| Column {
            name: name.to_string(),
            data_type: data_type.clone(),
            nullable: true,
            kind: ColumnKind::Physical,
        };
        Arc::new(Table {
            name: name.into(),
            columns: columns.iter().map(column).collect(),
            watermark: None,
            primary_key: Vec::new(),
            options: Default::default(),
        })
    }

    #[test]
    fn columns_are_put_together_by_name() {
        let plan = by_name(&[
            table("x", &[("a", DataType::Int64), ("b", DataType::Utf8)]),
            table("x", &[("c", DataType::Date32), ("a", DataType::Float64)]),
        ])
        .unwrap();
        let fields: Vec<_> = plan.schema().fields().iter().map(|f| (f.name().as_str(), f.data_type().clone())).collect();
        assert_eq!(fields, [("a", DataType::Float64), ("b", DataType::Utf8), ("c", DataType::Date32)]);
    }

    #[test]
    fn types_that_hold_both() {
        use DataType::*;
        for (a, b, both) in
            [(Int32, Int64, Int64), (Int64, Float32, Float64), (Int64, Utf8, Utf8), (Null, Date32, Date32), (Boolean, Int64, Utf8)]
        {
            assert_eq!((common(&a, &b), common(&b, &a)), (both.clone(), both));
        }
    }
}
