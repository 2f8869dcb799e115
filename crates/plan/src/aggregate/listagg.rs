//! LISTAGG: texts put together in the order in which they come. DataFusion's gives LargeUtf8, which is
//! no type of ours, and can take nothing back.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::{Accumulator, AggregateUDFImpl, ColumnarValue, Signature, Volatility};

/// `LISTAGG(text [, separator])`; the separator is a constant, a comma unless given.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ListAgg {
    signature: Signature,
    aliases: Vec<String>,
}

impl Default for ListAgg {
    fn default() -> Self {
        ListAgg { signature: Signature::user_defined(Volatility::Immutable), aliases: vec!["listagg".into()] }
    }
}

/// The value of an argument that must be a constant.
pub(super) fn constant(args: &AccumulatorArgs, index: usize) -> Result<Option<ScalarValue>> {
    let Some(expr) = args.exprs.get(index) else { return Ok(None) };
    let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
    match expr.evaluate(&nothing) {
        Ok(ColumnarValue::Scalar(value)) => Ok(Some(value)),
        _ => plan_err!("argument {} of {} must be a constant", index + 1, args.name),
    }
}

fn list_field() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Utf8, true))
}

impl ListAgg {
    fn make(&self, args: &AccumulatorArgs, retracts: bool) -> Result<Texts> {
        let separator = match constant(args, 1)? {
            None => ",".to_string(),
            Some(value) => value.try_as_str().flatten().unwrap_or_default().to_string(),
        };
        Ok(Texts {
            separator,
            kept: retracts || args.is_distinct,
            retracts,
            texts: Vec::new(),
            seen: args.is_distinct.then(HashSet::new),
            bytes: 0,
        })
    }
}

impl AggregateUDFImpl for ListAgg {
    /// DataFusion's name, so that it is found in its place.
    fn name(&self) -> &str {
        "string_agg"
    }
    fn aliases(&self) -> &[String] {
        &self.aliases
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null);
        if !(1..=2).contains(&args.len()) {
            return plan_err!("LISTAGG takes a STRING and a separator");
        }
        if !args.iter().all(text) {
            return plan_err!("LISTAGG takes a STRING: CAST(… AS STRING) makes one of any value");
        }
        Ok(vec![DataType::Utf8; args.len()])
    }
    fn return_type(&self, _args: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }
    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.make(&args, false)?))
    }
    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.make(&args, true)?))
    }
    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[texts]", args.name), DataType::List(list_field()), true))])
    }
}

/// The texts of a group: each by itself where one may be taken back, else all as one.
#[derive(Debug)]
struct Texts {
    separator: String,
    kept: bool,
    retracts: bool,
    texts: Vec<String>,
    /// DISTINCT.
    seen: Option<HashSet<String>>,
    bytes: usize,
}

impl Texts {
    fn push(&mut self, text: &str) {
        if self.seen.as_mut().is_some_and(|seen| !seen.insert(text.to_string())) {
            return;
        }
        self.bytes += text.len();
        match self.texts.last_mut() {
            Some(all) if !self.kept => {
                all.push_str(&self.separator);
                all.push_str(text);
            }
            _ => self.texts.push(text.to_string()),
        }
    }
}

impl Accumulator for Texts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values[0].as_string::<i32>().iter().flatten().for_each(|text| self.push(text));
        Ok(())
    }
    /// Takes away the oldest text that is the same.
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for text in values[0].as_string::<i32>().iter().flatten() {
            if let Some(at) = self.texts.iter().position(|t| t == text) {
                self.texts.remove(at);
                self.bytes -= text.len();
            }
        }
        Ok(())
    }
    /// With DISTINCT a text stands for all that are the same.
    fn supports_retract_batch(&self) -> bool {
        self.retracts && self.seen.is_none()
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8((!self.texts.is_empty()).then(|| self.texts.join(&self.separator))))
    }
    fn size(&self) -> usize {
        let seen = self.seen.as_ref().map_or(0, |s| s.capacity() * size_of::<String>() + self.bytes);
        size_of::<Self>() + self.texts.capacity() * size_of::<String>() + self.bytes + seen
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut list = ListBuilder::new(StringBuilder::new()).with_field(list_field());
        self.texts.iter().for_each(|text| list.values().append_value(text));
        list.append(true);
        Ok(vec![ScalarValue::List(Arc::new(list.finish()))])
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
            lists.value(row).as_string::<i32>().iter().flatten().for_each(|text| self.push(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
