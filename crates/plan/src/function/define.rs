//! How a scalar function is declared, and the columns its kernel sees.
//!
//! A function is one [`Def`] in the table of its theme: names, usage line, kinds of parameters, kind
//! of result, kernel. [`Function`] makes DataFusion's trait of it. A kernel gets a [`Call`] and
//! returns an array; constant arguments stay single values, and a call with constant arguments only
//! is computed once, whatever the number of rows. What the functions mean lives in their own files.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, Float64Array, Int64Array, PrimitiveArray, StringArray,
    new_null_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit};
use datafusion_common::{Result, ScalarValue, exec_err, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::type_coercion::binary::type_union_resolution;
use datafusion_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::moment::Moments;
use super::zone::Zone;

/// What a parameter accepts and how the kernel gets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Param {
    /// STRING; any other type is turned into text as a cast would.
    Text,
    /// BYTES; a STRING counts as its UTF-8 bytes.
    Bytes,
    /// BOOLEAN.
    Bool,
    /// Any integer, seen as BIGINT.
    Int,
    /// Any number, seen as DOUBLE.
    Double,
    /// Any number, in its own type.
    Number,
    /// TIMESTAMP, TIMESTAMP_LTZ, DATE or TIME in its own type, or a STRING that is parsed.
    Moment,
    /// Any type; all parameters of this kind get one common type.
    Union,
    /// Any type, left as it is.
    Any,
}

impl Param {
    /// What the parameter accepts, for messages.
    fn expects(self) -> &'static str {
        match self {
            Param::Text => "a STRING",
            Param::Bytes => "BYTES or a STRING",
            Param::Bool => "a BOOLEAN",
            Param::Int => "a whole number",
            Param::Double | Param::Number => "a number",
            Param::Moment => "a timestamp, a date or a time",
            Param::Union | Param::Any => "a value",
        }
    }
}

/// The type of the result.
#[derive(Clone, Copy)]
pub(super) enum Returns {
    Text,
    Texts,
    Bytes,
    Bool,
    Int,
    BigInt,
    Double,
    Date,
    Time,
    Timestamp,
    TimestampLtz,
    /// That of the argument at this position.
    Same(usize),
    /// Computed from the types and the constant arguments.
    With(fn(&[DataType], &[Option<&ScalarValue>]) -> Result<DataType>),
}

pub(super) type Kernel = fn(&Call) -> Result<ArrayRef>;

/// The declaration of a function.
#[derive(Clone, Copy)]
pub(super) struct Def {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// Name and parameters as a user would write them.
    pub usage: &'static str,
    /// One line of help.
    pub help: &'static str,
    params: &'static [Param],
    optional: usize,
    rest: Option<Param>,
    returns: Returns,
    kernel: Kernel,
    volatile: bool,
    per_row: bool,
    views: bool,
    rewrite: Option<fn(Vec<Expr>) -> Expr>,
    fuse: Option<Fuse>,
}

/// The function that does a call and one among its arguments in one go, and what it is called with; `None` if there is none.
pub(super) type Fuse = fn(&[Expr]) -> Option<(Def, Vec<Expr>)>;

pub(super) const fn def(
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    params: &'static [Param],
    returns: Returns,
    kernel: Kernel,
) -> Def {
    Def {
        name,
        aliases: &[],
        usage,
        help,
        params,
        optional: 0,
        rest: None,
        returns,
        kernel,
        volatile: false,
        per_row: false,
        views: false,
        rewrite: None,
        fuse: None,
    }
}

impl Def {
    /// Further names.
    pub(super) const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The last `count` parameters may be left out.
    pub(super) const fn optional(mut self, count: usize) -> Self {
        self.optional = count;
        self
    }

    /// Any number of further arguments of this kind.
    pub(super) const fn rest(mut self, param: Param) -> Self {
        self.rest = Some(param);
        self
    }

    /// The value differs from call to call, but is one for all rows of a block.
    pub(super) const fn volatile(mut self) -> Self {
        self.volatile = true;
        self
    }

    /// The value differs from row to row even if the arguments are constant.
    pub(super) const fn per_row(mut self) -> Self {
        self.volatile = true;
        self.per_row = true;
        self
    }

    /// The kernel takes views for texts, too: those it need not have copied into columns before.
    pub(super) const fn views(mut self) -> Self {
        self.views = true;
        self
    }

    /// What the optimizer makes of it: an expression that evaluates only the arguments it needs.
    pub(super) const fn rewrite(mut self, rewrite: fn(Vec<Expr>) -> Expr) -> Self {
        self.rewrite = Some(rewrite);
        self
    }

    /// What the optimizer makes of calls with certain arguments.
    pub(super) const fn fuse(mut self, fuse: Fuse) -> Self {
        self.fuse = Some(fuse);
        self
    }

    fn param(&self, position: usize) -> Option<Param> {
        self.params.get(position).copied().or(self.rest)
    }
}

/// What the functions know of the session, resolved once.
#[derive(Debug)]
pub(super) struct Session {
    pub time_zone: String,
    pub zone: std::result::Result<Zone, String>,
}

/// A [`Def`] as DataFusion wants it.
pub(super) struct Function {
    def: Def,
    aliases: Vec<String>,
    signature: Signature,
    session: Arc<Session>,
}

impl Function {
    pub(super) fn new(def: Def, session: Arc<Session>) -> Self {
        let volatility = if def.volatile { Volatility::Volatile } else { Volatility::Immutable };
        let signature = Signature::user_defined(volatility);
        Function { def, aliases: def.aliases.iter().map(|a| a.to_string()).collect(), signature, session }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.def.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.def.name == other.def.name && self.session.time_zone == other.session.time_zone
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.def.name.hash(state);
        self.session.time_zone.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.def.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        result_type(&self.def, types, &vec![None; types.len()])
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        // A value that depends on no argument is never null: the clock, a random number.
        let nullable = !(self.def.volatile && types.is_empty());
        Ok(Arc::new(Field::new(self.def.name, result_type(&self.def, &types, args.scalar_arguments)?, nullable)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        coerce(&self.def, types)
    }

    fn short_circuits(&self) -> bool {
        self.def.rewrite.is_some()
    }

    fn simplify(&self, args: Vec<Expr>, _info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if let Some(rewrite) = self.def.rewrite {
            return Ok(ExprSimplifyResult::Simplified(rewrite(args)));
        }
        let Some((def, args)) = self.def.fuse.and_then(|fuse| fuse(&args)) else { return Ok(ExprSimplifyResult::Original(args)) };
        let function = ScalarUDF::from(Function::new(def, self.session.clone()));
        Ok(ExprSimplifyResult::Simplified(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), args))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = !self.def.per_row && args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let call = Call { def: &self.def, args: &args.args, rows, returns: args.return_field.data_type(), session: &self.session };
        let array = (self.def.kernel)(&call)?;
        debug_assert_eq!(array.len(), rows, "rows of {}", self.def.name);
        debug_assert_eq!(array.data_type(), call.returns, "type of {}", self.def.name);
        Ok(if constant { ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?) } else { ColumnarValue::Array(array) })
    }
}

/// TIMESTAMP_LTZ of this unit.
pub(super) fn ltz(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some("UTC".into()))
}

fn result_type(def: &Def, types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match def.returns {
        Returns::Text => DataType::Utf8,
        Returns::Texts => DataType::new_list(DataType::Utf8, true),
        Returns::Bytes => DataType::Binary,
        Returns::Bool => DataType::Boolean,
        Returns::Int => DataType::Int32,
        Returns::BigInt => DataType::Int64,
        Returns::Double => DataType::Float64,
        Returns::Date => DataType::Date32,
        Returns::Time => DataType::Time32(TimeUnit::Millisecond),
        Returns::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, None),
        Returns::TimestampLtz => ltz(TimeUnit::Millisecond),
        Returns::Same(position) => types[position].clone(),
        Returns::With(with) => return with(types, constants),
    })
}

fn coerce(def: &Def, types: &[DataType]) -> Result<Vec<DataType>> {
    let least = def.params.len() - def.optional;
    if types.len() < least || (def.rest.is_none() && types.len() > def.params.len()) {
        return plan_err!("{} does not take {} arguments; it is used as {}", def.name.to_uppercase(), types.len(), def.usage);
    }
    let united: Vec<DataType> =
        types.iter().enumerate().filter(|(i, _)| def.param(*i) == Some(Param::Union)).map(|(_, t)| plain_text(t)).collect();
    let union = match united.as_slice() {
        [] => DataType::Null,
        [first, rest @ ..] if rest.iter().all(|t| t == first) => first.clone(),
        _ => match type_union_resolution(&united) {
            Some(t) => plain_text(&t),
            None => {
                let names: Vec<String> = united.iter().map(type_name).collect();
                return plan_err!("the arguments of {} have no common type: {}; cast them", def.usage, names.join(", "));
            }
        },
    };
    types
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let param = def.param(i).expect("arity was checked");
            if def.views && param == Param::Text && *t == DataType::Utf8View {
                return Ok(DataType::Utf8View);
            }
            match coerce_one(param, t, &union) {
                Some(t) => Ok(t),
                None => plan_err!("argument {} of {} is {}, not {}; cast it", i + 1, def.usage, type_name(t), param.expects()),
            }
        })
        .collect()
}

fn plain_text(t: &DataType) -> DataType {
    if matches!(t, DataType::Utf8View | DataType::LargeUtf8) { DataType::Utf8 } else { t.clone() }
}

fn coerce_one(param: Param, t: &DataType, union: &DataType) -> Option<DataType> {
    use DataType::*;
    let t = plain_text(t);
    Some(match (param, t) {
        (Param::Text, Null) => Utf8,
        (Param::Text | Param::Any, t) => t,
        (Param::Bytes, Binary | LargeBinary | BinaryView | FixedSizeBinary(_) | Utf8 | Null) => Binary,
        (Param::Bool, Boolean | Null) => Boolean,
        (Param::Int, t) if t.is_integer() || t == Null => Int64,
        (Param::Double, t) if t.is_numeric() || t == Null => Float64,
        (Param::Number, t @ (Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Decimal128(..))) => t,
        (Param::Number, UInt8 | UInt16 | UInt32 | UInt64) => Int64,
        (Param::Number, Float16) => Float32,
        (Param::Number, Decimal32(p, s) | Decimal64(p, s)) => Decimal128(p, s),
        (Param::Number, Null) => Int32,
        (Param::Moment, Null | Date64) => Timestamp(TimeUnit::Millisecond, None),
        (Param::Moment, Time32(_) | Time64(_)) => Time32(TimeUnit::Millisecond),
        (Param::Moment, t @ (Timestamp(..) | Date32 | Utf8)) => t,
        (Param::Union, _) => union.clone(),
        _ => return None,
    })
}

/// The SQL name of a type, for messages.
pub(super) fn type_name(t: &DataType) -> String {
    match t {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "STRING".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTES".into(),
        DataType::Decimal128(p, s) => format!("DECIMAL({p}, {s})"),
        DataType::Date32 => "DATE".into(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".into(),
        DataType::Timestamp(unit, zone) => {
            let name = if zone.is_some() { "TIMESTAMP_LTZ" } else { "TIMESTAMP" };
            format!("{name}({})", tidemill_block::value::fraction_digits(*unit))
        }
        other => other.to_string(),
    }
}

/// A call of a function on a block.
pub(super) struct Call<'a> {
    def: &'a Def,
    args: &'a [ColumnarValue],
    /// How many values to compute.
    pub rows: usize,
    /// The type of the result.
    pub returns: &'a DataType,
    session: &'a Session,
}

impl Call<'_> {
    /// How many arguments there are.
    pub(super) fn len(&self) -> usize {
        self.args.len()
    }

    /// The name of the function, for messages.
    pub(super) fn name(&self) -> String {
        self.def.name.to_uppercase()
    }

    /// The session's time zone.
    pub(super) fn zone(&self) -> Result<Zone> {
        match &self.session.zone {
            Ok(zone) => Ok(*zone),
            Err(message) => exec_err!("{message}"),
        }
    }

    /// The type of an argument.
    pub(super) fn type_of(&self, position: usize) -> DataType {
        self.args[position].data_type()
    }

    /// An argument as it is.
    pub(super) fn arg(&self, position: usize) -> Result<Arg<ArrayRef>> {
        Ok(match &self.args[position] {
            ColumnarValue::Array(array) => Arg { array: array.clone(), mask: usize::MAX },
            ColumnarValue::Scalar(scalar) => Arg { array: scalar.to_array()?, mask: 0 },
        })
    }

    /// An argument as it is, as many values as rows.
    pub(super) fn column(&self, position: usize) -> Result<ArrayRef> {
        self.args[position].to_array(self.rows)
    }

    fn typed(&self, position: usize, wanted: &DataType) -> Result<Arg<ArrayRef>> {
        let arg = self.arg(position)?;
        if arg.array.data_type() == wanted {
            return Ok(arg);
        }
        let array = match arg.array.data_type() {
            DataType::Null => new_null_array(wanted, arg.array.len()),
            _ => cast(&arg.array, wanted)?,
        };
        Ok(Arg { array, mask: arg.mask })
    }

    /// A [`Param::Text`].
    pub(super) fn text(&self, position: usize) -> Result<Arg<StringArray>> {
        let arg = self.arg(position)?;
        let array = match arg.array.data_type() {
            DataType::Utf8 => arg.array,
            DataType::Null | DataType::Utf8View | DataType::LargeUtf8 => cast(&arg.array, &DataType::Utf8)?,
            _ => super::cast::to_text(&arg.array, self.zone()?)?,
        };
        Ok(Arg { array: array.as_string::<i32>().clone(), mask: arg.mask })
    }

    /// A [`Param::Bytes`].
    pub(super) fn bytes(&self, position: usize) -> Result<Arg<BinaryArray>> {
        let arg = self.typed(position, &DataType::Binary)?;
        Ok(Arg { array: arg.array.as_binary::<i32>().clone(), mask: arg.mask })
    }

    /// A [`Param::Int`].
    pub(super) fn int(&self, position: usize) -> Result<Arg<Int64Array>> {
        let arg = self.typed(position, &DataType::Int64)?;
        Ok(Arg { array: arg.array.as_primitive::<Int64Type>().clone(), mask: arg.mask })
    }

    /// A [`Param::Double`].
    pub(super) fn double(&self, position: usize) -> Result<Arg<Float64Array>> {
        let arg = self.typed(position, &DataType::Float64)?;
        Ok(Arg { array: arg.array.as_primitive::<Float64Type>().clone(), mask: arg.mask })
    }

    /// A [`Param::Moment`].
    pub(super) fn moment(&self, position: usize) -> Result<Moments> {
        let arg = self.arg(position)?;
        Moments::new(&arg.array, arg.mask, self.zone()?)
    }

    /// A constant text argument, such as a unit or a type; `None` if it is left out or NULL.
    ///
    /// # Errors
    /// It differs from row to row.
    pub(super) fn word(&self, position: usize) -> Result<Option<String>> {
        match self.args.get(position) {
            None => Ok(None),
            Some(ColumnarValue::Scalar(ScalarValue::Utf8(v) | ScalarValue::Utf8View(v) | ScalarValue::LargeUtf8(v))) => Ok(v.clone()),
            Some(ColumnarValue::Scalar(v)) if v.is_null() => Ok(None),
            Some(_) => exec_err!("argument {} of {} has to be a literal", position + 1, self.def.usage),
        }
    }
}

/// An argument: a column, or one value for all rows.
pub(super) struct Arg<A> {
    pub array: A,
    /// All ones for a column, zero for one value.
    pub mask: usize,
}

impl<A> Arg<A> {
    /// The index of a row's value in the array.
    #[inline]
    pub(super) fn index(&self, row: usize) -> usize {
        row & self.mask
    }

    /// Whether it is one value for all rows.
    pub(super) fn is_constant(&self) -> bool {
        self.mask == 0
    }
}

impl Arg<StringArray> {
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        let i = self.index(row);
        self.array.is_valid(i).then(|| self.array.value(i))
    }
}

impl Arg<BinaryArray> {
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<&[u8]> {
        let i = self.index(row);
        self.array.is_valid(i).then(|| self.array.value(i))
    }
}

impl<T: ArrowPrimitiveType> Arg<PrimitiveArray<T>> {
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<T::Native> {
        let i = self.index(row);
        self.array.is_valid(i).then(|| self.array.value(i))
    }
}

fn build_bytes(
    rows: usize,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Option<()>,
) -> Result<(OffsetBuffer<i32>, Buffer, Option<NullBuffer>)> {
    let mut bytes: Vec<u8> = Vec::with_capacity(rows * 16);
    let mut offsets: Vec<i32> = Vec::with_capacity(rows + 1);
    let mut valid: Option<Vec<bool>> = None;
    offsets.push(0);
    for row in 0..rows {
        let start = bytes.len();
        if write(row, &mut bytes).is_none() {
            bytes.truncate(start);
            valid.get_or_insert_with(|| vec![true; rows])[row] = false;
        }
        match i32::try_from(bytes.len()) {
            Ok(end) => offsets.push(end),
            Err(_) => return exec_err!("a column of a block would hold more than 2 GiB of text; use smaller blocks ('block.size')"),
        }
    }
    Ok((OffsetBuffer::new(ScalarBuffer::from(offsets)), Buffer::from_vec(bytes), valid.map(NullBuffer::from)))
}

/// A column of text: `write` appends the bytes of a row, or says that it is NULL.
///
/// # Errors
/// More than 2 GiB, or bytes that are no UTF-8.
pub(super) fn build_text(rows: usize, write: impl FnMut(usize, &mut Vec<u8>) -> Option<()>) -> Result<ArrayRef> {
    let (offsets, bytes, nulls) = build_bytes(rows, write)?;
    Ok(Arc::new(StringArray::try_new(offsets, bytes, nulls)?))
}

/// A column of bytes; see [`build_text`].
pub(super) fn build_binary(rows: usize, write: impl FnMut(usize, &mut Vec<u8>) -> Option<()>) -> Result<ArrayRef> {
    let (offsets, bytes, nulls) = build_bytes(rows, write)?;
    Ok(Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?))
}

/// A column of numbers, dates or times.
pub(super) fn build<T: ArrowPrimitiveType>(rows: usize, mut value: impl FnMut(usize) -> Option<T::Native>) -> Result<ArrayRef> {
    let mut valid: Option<Vec<bool>> = None;
    let values = (0..rows).map(|row| {
        value(row).unwrap_or_else(|| {
            valid.get_or_insert_with(|| vec![true; rows])[row] = false;
            T::Native::default()
        })
    });
    let values: Vec<T::Native> = values.collect();
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), valid.map(NullBuffer::from))))
}

/// A column of booleans.
pub(super) fn build_bool(rows: usize, value: impl FnMut(usize) -> Option<bool>) -> Result<ArrayRef> {
    Ok(Arc::new((0..rows).map(value).collect::<BooleanArray>()))
}
