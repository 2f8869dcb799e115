//! Conditions over single candidates.
//!
//! A condition that looks back cannot be computed for a column of rows, because what it looks back at
//! differs with each partial match. Comparisons, arithmetic and logic over numbers, times and strings,
//! which is what such conditions are made of, are compiled into a small tree here; anything else is
//! given to DataFusion as a batch of one row.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, Column as Bound, IsNotNullExpr, IsNullExpr, Literal, NotExpr};

use super::column::{Kind, Value, kind};
use crate::OperatorError;
use crate::map::Expr;

/// A condition over the columns of the extended schema.
pub(super) enum Condition {
    Compiled(Node),
    /// The expression over only the columns that it uses, those columns, and their types.
    Slow {
        expression: Expr,
        columns: Vec<usize>,
        schema: SchemaRef,
    },
}

/// A compiled expression. NULL is a value, as in SQL's three-valued logic.
pub(super) enum Node {
    Column(usize),
    Constant(Constant),
    /// Equal, less, greater: whether each makes it true.
    Compare([bool; 3], Box<(Node, Node)>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Not(Box<Node>),
    IsNull(Box<Node>, bool),
    /// Integers of so many bits, wrapping as Arrow's kernels do.
    IntArithmetic(Arithmetic, u32, Box<(Node, Node)>),
    FloatArithmetic(Arithmetic, bool, Box<(Node, Node)>),
    IntToFloat(Box<Node>),
}

pub(super) enum Constant {
    Null,
    Int(i64),
    Float(f64),
    Wide(i128),
    Text(String),
}

#[derive(Clone, Copy)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Condition {
    /// Compiles `expression` over columns of `types`.
    ///
    /// # Errors
    /// An expression that DataFusion cannot rebuild.
    pub fn new(expression: &Expr, types: &[DataType]) -> Result<Self, OperatorError> {
        if let Some((node, DataType::Boolean)) = compile(expression, types) {
            return Ok(Condition::Compiled(node));
        }
        let mut columns = Vec::new();
        columns_of(expression, &mut columns);
        let fields: Vec<Field> = columns.iter().map(|c| Field::new(format!("c{c}"), types[*c].clone(), true)).collect();
        let expression = remap(expression, &|index| columns.iter().position(|c| *c == index))?;
        Ok(Condition::Slow { expression, columns, schema: Arc::new(Schema::new(fields)) })
    }

    /// Whether the condition is true; `load` gives the value of a column.
    ///
    /// # Errors
    /// A value that DataFusion cannot compute.
    #[inline]
    pub fn holds<'a>(&'a self, load: &impl Fn(usize) -> Result<Value<'a>, OperatorError>) -> Result<bool, OperatorError> {
        match self {
            Condition::Compiled(node) => Ok(matches!(node.value(load)?, Value::Int(1))),
            Condition::Slow { expression, columns, schema } => {
                let arrays = columns
                    .iter()
                    .zip(schema.fields())
                    .map(|(column, field)| load(*column)?.to_array(field.data_type()))
                    .collect::<Result<Vec<ArrayRef>, _>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(1));
                let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?;
                let result = expression.evaluate(&batch)?.into_array(1)?;
                let result = result.as_boolean_opt().ok_or_else(|| {
                    OperatorError::new(format!("internal error: a condition of a pattern gives {}, not BOOLEAN", result.data_type()))
                })?;
                Ok(result.is_valid(0) && result.value(0))
            }
        }
    }
}

/// The columns that an expression uses, each once.
pub(super) fn columns_of(expression: &Expr, found: &mut Vec<usize>) {
    if let Some(column) = expression.downcast_ref::<Bound>() {
        if !found.contains(&column.index()) {
            found.push(column.index());
        }
        return;
    }
    expression.children().into_iter().for_each(|c| columns_of(c, found));
}

/// The same expression over other columns; `place` gives the new index of a column.
///
/// # Errors
/// An expression that cannot be rebuilt, or a column without a place.
pub(super) fn remap(expression: &Expr, place: &dyn Fn(usize) -> Option<usize>) -> Result<Expr, OperatorError> {
    if let Some(column) = expression.downcast_ref::<Bound>() {
        let index = place(column.index())
            .ok_or_else(|| OperatorError::new(format!("internal error: the column {} of a pattern is not kept", column.name())))?;
        return Ok(Arc::new(Bound::new(column.name(), index)));
    }
    let children = expression.children();
    if children.is_empty() {
        return Ok(expression.clone());
    }
    let children = children.into_iter().map(|c| remap(c, place)).collect::<Result<Vec<_>, _>>()?;
    Ok(expression.clone().with_new_children(children)?)
}

impl Node {
    #[inline]
    fn value<'a>(&'a self, load: &impl Fn(usize) -> Result<Value<'a>, OperatorError>) -> Result<Value<'a>, OperatorError> {
        let truth = |b: bool| Value::Int(i64::from(b));
        Ok(match self {
            Node::Column(index) => load(*index)?,
            Node::Constant(constant) => match constant {
                Constant::Null => Value::Null,
                Constant::Int(v) => Value::Int(*v),
                Constant::Float(v) => Value::Float(*v),
                Constant::Wide(v) => Value::Wide(*v),
                Constant::Text(v) => Value::Text(v),
            },
            Node::Compare([equal, less, greater], sides) => match sides.0.value(load)?.order(sides.1.value(load)?) {
                None => Value::Null,
                Some(Ordering::Equal) => truth(*equal),
                Some(Ordering::Less) => truth(*less),
                Some(Ordering::Greater) => truth(*greater),
            },
            Node::And(sides) => match sides.0.value(load)? {
                Value::Int(0) => truth(false),
                left => match (left, sides.1.value(load)?) {
                    (_, Value::Int(0)) => truth(false),
                    (Value::Int(_), Value::Int(_)) => truth(true),
                    _ => Value::Null,
                },
            },
            Node::Or(sides) => match sides.0.value(load)? {
                Value::Int(1) => truth(true),
                left => match (left, sides.1.value(load)?) {
                    (_, Value::Int(1)) => truth(true),
                    (Value::Int(_), Value::Int(_)) => truth(false),
                    _ => Value::Null,
                },
            },
            Node::Not(inner) => match inner.value(load)? {
                Value::Int(v) => truth(v == 0),
                _ => Value::Null,
            },
            Node::IsNull(inner, when_null) => truth(inner.value(load)?.is_null() == *when_null),
            Node::IntArithmetic(operation, bits, sides) => match (sides.0.value(load)?, sides.1.value(load)?) {
                (Value::Int(a), Value::Int(b)) => {
                    let wide = match operation {
                        Arithmetic::Add => a.wrapping_add(b),
                        Arithmetic::Subtract => a.wrapping_sub(b),
                        Arithmetic::Multiply | Arithmetic::Divide => a.wrapping_mul(b),
                    };
                    let unused = 64 - bits;
                    Value::Int((wide << unused) >> unused)
                }
                _ => Value::Null,
            },
            Node::FloatArithmetic(operation, single, sides) => match (sides.0.value(load)?, sides.1.value(load)?) {
                (Value::Float(a), Value::Float(b)) => {
                    // Rounding the double result of two singles to single is what single arithmetic
                    // gives: 53 bits are more than twice 24 and two.
                    let result = match operation {
                        Arithmetic::Add => a + b,
                        Arithmetic::Subtract => a - b,
                        Arithmetic::Multiply => a * b,
                        Arithmetic::Divide => a / b,
                    };
                    Value::Float(if *single { f64::from(result as f32) } else { result })
                }
                _ => Value::Null,
            },
            Node::IntToFloat(inner) => match inner.value(load)? {
                Value::Int(v) => Value::Float(v as f64),
                _ => Value::Null,
            },
        })
    }
}

fn compile(expression: &Expr, types: &[DataType]) -> Option<(Node, DataType)> {
    if let Some(column) = expression.downcast_ref::<Bound>() {
        let data_type = types.get(column.index())?;
        return (kind(data_type) != Kind::Other).then(|| (Node::Column(column.index()), data_type.clone()));
    }
    if let Some(literal) = expression.downcast_ref::<Literal>() {
        return constant(literal.value());
    }
    if let Some(not) = expression.downcast_ref::<NotExpr>() {
        return match compile(not.arg(), types)? {
            (node, DataType::Boolean) => Some((Node::Not(Box::new(node)), DataType::Boolean)),
            _ => None,
        };
    }
    if let Some(test) = expression.downcast_ref::<IsNullExpr>() {
        return Some((Node::IsNull(Box::new(compile(test.arg(), types)?.0), true), DataType::Boolean));
    }
    if let Some(test) = expression.downcast_ref::<IsNotNullExpr>() {
        return Some((Node::IsNull(Box::new(compile(test.arg(), types)?.0), false), DataType::Boolean));
    }
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        return compile_cast(expression, cast, types);
    }
    let binary = expression.downcast_ref::<BinaryExpr>()?;
    if let Some(shifted) = compile_shift(binary, types) {
        return Some(shifted);
    }
    let (left, left_type) = compile(binary.left(), types)?;
    let (right, right_type) = compile(binary.right(), types)?;
    let sides = Box::new((left, right));
    let logic = left_type == DataType::Boolean && right_type == DataType::Boolean;
    let same = comparable(&left_type, &right_type);
    let compare = |outcome: [bool; 3], sides| same.then_some((Node::Compare(outcome, sides), DataType::Boolean));
    match binary.op() {
        Operator::And if logic => Some((Node::And(sides), DataType::Boolean)),
        Operator::Or if logic => Some((Node::Or(sides), DataType::Boolean)),
        Operator::Eq => compare([true, false, false], sides),
        Operator::NotEq => compare([false, true, true], sides),
        Operator::Lt => compare([false, true, false], sides),
        Operator::LtEq => compare([true, true, false], sides),
        Operator::Gt => compare([false, false, true], sides),
        Operator::GtEq => compare([true, false, true], sides),
        Operator::Plus => arithmetic(Arithmetic::Add, left_type, &right_type, sides),
        Operator::Minus => arithmetic(Arithmetic::Subtract, left_type, &right_type, sides),
        Operator::Multiply => arithmetic(Arithmetic::Multiply, left_type, &right_type, sides),
        Operator::Divide => arithmetic(Arithmetic::Divide, left_type, &right_type, sides),
        _ => None,
    }
}

/// Whether values of the two types have an order here. Timestamps of one unit are instants, whatever
/// their zones.
fn comparable(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::Timestamp(a, _), DataType::Timestamp(b, _)) => a == b,
        (DataType::Decimal128(_, a), DataType::Decimal128(_, b)) => a == b,
        _ => left == right,
    }
}

fn arithmetic(operation: Arithmetic, left: DataType, right: &DataType, sides: Box<(Node, Node)>) -> Option<(Node, DataType)> {
    if left != *right {
        return None;
    }
    let bits = match left {
        DataType::Float32 | DataType::Float64 => {
            return Some((Node::FloatArithmetic(operation, left == DataType::Float32, sides), left));
        }
        DataType::Int8 => 8,
        DataType::Int16 => 16,
        DataType::Int32 => 32,
        DataType::Int64 => 64,
        _ => return None,
    };
    // Division by zero is an error with a message: DataFusion's.
    (!matches!(operation, Arithmetic::Divide)).then_some((Node::IntArithmetic(operation, bits, sides), left))
}

/// `time ± INTERVAL '…'` with an interval of a fixed length.
fn compile_shift(binary: &BinaryExpr, types: &[DataType]) -> Option<(Node, DataType)> {
    let operation = match binary.op() {
        Operator::Plus => Arithmetic::Add,
        Operator::Minus => Arithmetic::Subtract,
        _ => return None,
    };
    let (days, nanoseconds) = match binary.right().downcast_ref::<Literal>()?.value() {
        ScalarValue::IntervalMonthDayNano(Some(v)) if v.months == 0 => (v.days, v.nanoseconds),
        ScalarValue::IntervalDayTime(Some(v)) => (v.days, i64::from(v.milliseconds) * 1_000_000),
        _ => return None,
    };
    let (time, data_type) = compile(binary.left(), types)?;
    let DataType::Timestamp(unit, zone) = &data_type else { return None };
    // In a zone with summer time a day is not always 24 hours.
    if days != 0 && zone.as_deref().is_some_and(|z| z != "UTC" && z != "+00:00") {
        return None;
    }
    let unit_ns = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    if nanoseconds % unit_ns != 0 {
        return None;
    }
    let distance = i64::from(days) * (86_400_000_000_000 / unit_ns) + nanoseconds / unit_ns;
    let sides = Box::new((time, Node::Constant(Constant::Int(distance))));
    Some((Node::IntArithmetic(operation, 64, sides), data_type))
}

fn compile_cast(expression: &Expr, cast: &CastExpr, types: &[DataType]) -> Option<(Node, DataType)> {
    if cast.expr().downcast_ref::<Literal>().is_some() {
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).ok()?;
        let folded = expression.evaluate(&batch).ok()?.into_array(1).ok()?;
        return constant(&ScalarValue::try_from_array(&folded, 0).ok()?);
    }
    let (node, from) = compile(cast.expr(), types)?;
    let to = cast.cast_type();
    let bits = |t: &DataType| match t {
        DataType::Int8 => Some(8),
        DataType::Int16 => Some(16),
        DataType::Int32 => Some(32),
        DataType::Int64 => Some(64),
        _ => None,
    };
    match (&from, to) {
        (a, b) if a == b => Some((node, from)),
        (DataType::Float32, DataType::Float64) => Some((node, DataType::Float64)),
        (DataType::Decimal128(p, s), DataType::Decimal128(q, t)) if s == t && p <= q => Some((node, to.clone())),
        (a, DataType::Float64) if bits(a).is_some() => Some((Node::IntToFloat(Box::new(node)), DataType::Float64)),
        (a, b) if bits(a).zip(bits(b)).is_some_and(|(a, b)| a < b) => Some((node, to.clone())),
        _ => None,
    }
}

fn constant(value: &ScalarValue) -> Option<(Node, DataType)> {
    let data_type = value.data_type();
    if kind(&data_type) == Kind::Other {
        return None;
    }
    let constant = match value {
        v if v.is_null() => Constant::Null,
        ScalarValue::Boolean(Some(v)) => Constant::Int(i64::from(*v)),
        ScalarValue::Int8(Some(v)) => Constant::Int(i64::from(*v)),
        ScalarValue::Int16(Some(v)) => Constant::Int(i64::from(*v)),
        ScalarValue::Int32(Some(v)) | ScalarValue::Date32(Some(v)) => Constant::Int(i64::from(*v)),
        ScalarValue::Time32Second(Some(v)) | ScalarValue::Time32Millisecond(Some(v)) => Constant::Int(i64::from(*v)),
        ScalarValue::Int64(Some(v))
        | ScalarValue::TimestampSecond(Some(v), _)
        | ScalarValue::TimestampMillisecond(Some(v), _)
        | ScalarValue::TimestampMicrosecond(Some(v), _)
        | ScalarValue::TimestampNanosecond(Some(v), _) => Constant::Int(*v),
        ScalarValue::Float32(Some(v)) => Constant::Float(f64::from(*v)),
        ScalarValue::Float64(Some(v)) => Constant::Float(*v),
        ScalarValue::Decimal128(Some(v), ..) => Constant::Wide(*v),
        ScalarValue::Utf8(Some(v)) => Constant::Text(v.clone()),
        _ => return None,
    };
    Some((Node::Constant(constant), data_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_physical_expr::expressions::lit;

    fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    /// Columns: an INT, a BIGINT, a DOUBLE, a STRING, a BOOLEAN that is NULL.
    #[track_caller]
    fn check(expression: Expr, compiled: bool, expect: bool) {
        let types = [DataType::Int32, DataType::Int64, DataType::Float64, DataType::Utf8, DataType::Boolean];
        let values = [Value::Int(7), Value::Int(i64::MAX), Value::Float(2.5), Value::Text("b"), Value::Null];
        let condition = Condition::new(&expression, &types).unwrap();
        assert_eq!(matches!(condition, Condition::Compiled(_)), compiled, "compiled");
        assert_eq!(condition.holds(&|i| Ok(values[i])).unwrap(), expect, "{expression}");
    }

    #[test]
    fn conditions() {
        let column = |i: usize| -> Expr { Arc::new(Bound::new("c", i)) };
        let null = || column(4);
        let yes = || binary(lit(1i64), Operator::Eq, lit(1i64));
        check(binary(column(0), Operator::Lt, lit(8i32)), true, true);
        check(binary(column(0), Operator::GtEq, lit(8i32)), true, false);
        check(binary(binary(column(1), Operator::Plus, lit(1i64)), Operator::Lt, column(1)), true, true);
        let product = binary(column(2), Operator::Multiply, Arc::new(CastExpr::new(column(0), DataType::Float64, None)));
        check(binary(product, Operator::Eq, lit(17.5)), true, true);
        check(binary(column(3), Operator::Gt, lit("a")), true, true);
        check(binary(null(), Operator::And, yes()), true, false);
        check(binary(null(), Operator::Or, yes()), true, true);
        check(Arc::new(NotExpr::new(null())), true, false);
        check(Arc::new(IsNullExpr::new(null())), true, true);
        check(Arc::new(IsNotNullExpr::new(column(3))), true, true);
        // By DataFusion: division of integers.
        check(binary(binary(column(0), Operator::Divide, lit(2i32)), Operator::Eq, lit(3i32)), false, true);
        check(binary(binary(column(0), Operator::Modulo, lit(4i32)), Operator::Eq, lit(2i32)), false, false);
    }

    #[test]
    fn times_are_shifted() {
        let types = [DataType::Timestamp(TimeUnit::Millisecond, None)];
        let interval = ScalarValue::new_interval_mdn(0, 1, 5_000_000_000);
        let shifted = binary(Arc::new(Bound::new("t", 0)), Operator::Minus, Arc::new(Literal::new(interval)));
        let moment = Arc::new(Literal::new(ScalarValue::TimestampMillisecond(Some(1_000), None)));
        let condition = Condition::new(&binary(shifted, Operator::Eq, moment), &types).unwrap();
        assert!(matches!(condition, Condition::Compiled(_)));
        assert!(condition.holds(&|_| Ok(Value::Int(86_406_000))).unwrap());
        assert!(!condition.holds(&|_| Ok(Value::Int(86_406_001))).unwrap());
    }
}
