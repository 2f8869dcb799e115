//! What conditions look at: neighbouring rows, and rows that the partial match took before.
//!
//! What a condition looks up in the partial match is kept in *registers*, words that stand beside each
//! link of a chain and are computed from the ones of the link before: so `FIRST(A.x)` or `SUM(A.x)` cost
//! the same however long the match is. Aggregates without such a form are computed from the chain anew.

use std::cmp::Ordering;
use std::collections::VecDeque;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use tidemill_plan::float_sum::FloatSum;
use tidemill_plan::pattern::End;

use super::chain::{Chains, NONE, Taken};
use super::column::{RowStore, Value};
use super::scalar::Condition;
use crate::OperatorError;
use crate::aggregate::{AggregateCall, Rows, accumulator, overflow};

/// No row.
const NO_ROW: u64 = u64::MAX;

/// The rows of a partition that are held: their places in the [`RowStore`], and the number of the first.
#[derive(Default)]
pub(super) struct KeyRows {
    pub places: VecDeque<u32>,
    pub base: u32,
}

impl KeyRows {
    /// One more than the number of the last row.
    #[inline]
    pub fn end(&self) -> u32 {
        self.base.wrapping_add(self.places.len() as u32)
    }

    /// Where row `number` lies, if it is held.
    #[inline]
    pub fn place(&self, number: u32) -> Option<u32> {
        self.places.get(number.wrapping_sub(self.base) as usize).copied()
    }

    /// Where the row `shift` rows behind `number` lies, if it is held.
    #[inline]
    pub fn near(&self, number: u32, shift: i64) -> Option<u32> {
        let index = i64::from(number.wrapping_sub(self.base)).checked_add(shift)?;
        self.places.get(usize::try_from(index).ok()?).copied()
    }
}

/// The set of symbols that navigation `symbols` looks at, as bits.
pub(super) fn symbol_bits(symbols: Option<&[usize]>) -> u64 {
    symbols.map_or(u64::MAX, |s| s.iter().fold(0, |bits, symbol| bits | (1u64 << *symbol)))
}

/// One thing that is kept beside each link.
pub(super) struct Register {
    /// Changed by rows of these symbols.
    pub symbols: u64,
    pub kind: RegisterKind,
    /// Its first word.
    pub at: usize,
}

pub(super) enum RegisterKind {
    /// The row `offset` from an end; a word holds the row's number and, above it, its symbol.
    Row {
        end: End,
        offset: usize,
    },
    /// The rows in which a column is not NULL.
    Count {
        column: Option<usize>,
    },
    SumInt {
        column: usize,
    },
    SumWide {
        column: usize,
        output: DataType,
    },
    /// The sum, or with `mean` the mean, as [`FloatSum`] has it.
    SumFloat {
        column: usize,
        mean: bool,
        single: bool,
    },
    /// The row with the least or greatest value.
    Extreme {
        column: usize,
        largest: bool,
    },
}

impl RegisterKind {
    fn words(&self) -> usize {
        match self {
            RegisterKind::Row { end: End::First, .. } => 2,
            RegisterKind::Row { end: End::Last, offset } => offset + 1,
            RegisterKind::Count { .. } | RegisterKind::Extreme { .. } => 1,
            RegisterKind::SumInt { .. } => 2,
            RegisterKind::SumWide { .. } => 3,
            RegisterKind::SumFloat { .. } => 5,
        }
    }

    /// The register that serves an aggregate call whose argument is a kept column, if there is one.
    pub fn of_call(call: &AggregateCall, column: Option<usize>) -> Option<Self> {
        let once = call.distinct && !matches!(call.name.as_str(), "min" | "max");
        if call.filter.is_some() || once || call.argument_types.len() > 1 {
            return None;
        }
        let input = call.argument_types.first();
        let output = call.output.data_type();
        Some(match (call.name.as_str(), column, input, output) {
            ("count", column, _, DataType::Int64) => RegisterKind::Count { column },
            ("sum", Some(column), Some(DataType::Int64), DataType::Int64) => RegisterKind::SumInt { column },
            ("sum", Some(column), Some(DataType::Decimal128(_, a)), DataType::Decimal128(_, b)) if a == b => {
                RegisterKind::SumWide { column, output: output.clone() }
            }
            ("sum" | "avg", Some(column), Some(DataType::Float64), DataType::Float64) => {
                RegisterKind::SumFloat { column, mean: call.name == "avg", single: false }
            }
            ("sum" | "avg", Some(column), Some(DataType::Float32), DataType::Float32) => {
                RegisterKind::SumFloat { column, mean: call.name == "avg", single: true }
            }
            ("min" | "max", Some(column), Some(input), output) if input == output => {
                RegisterKind::Extreme { column, largest: call.name == "max" }
            }
            _ => return None,
        })
    }
}

/// The layout of the registers.
#[derive(Default)]
pub(super) struct Registers {
    pub list: Vec<Register>,
    /// Words a link.
    pub stride: usize,
}

fn float_words(sum: &FloatSum, count: u64) -> [u64; 5] {
    let (high, low, [up, down, nan]) = sum.parts();
    [high.to_bits(), low.to_bits(), u64::from(up as u32) | u64::from(down as u32) << 32, u64::from(nan as u32), count]
}

fn float_sum(words: &[u64]) -> FloatSum {
    let odd = [words[2] as u32 as i32, (words[2] >> 32) as u32 as i32, words[3] as u32 as i32];
    FloatSum::from_parts(f64::from_bits(words[0]), f64::from_bits(words[1]), odd)
}

impl Registers {
    /// Adds a register and returns its index.
    pub fn add(&mut self, symbols: u64, kind: RegisterKind) -> usize {
        let at = self.stride;
        self.stride += kind.words();
        self.list.push(Register { symbols, kind, at });
        self.list.len() - 1
    }

    /// The registers before the first row.
    pub fn initial(&self, words: &mut Vec<u64>) {
        words.clear();
        words.resize(self.stride, 0);
        for register in &self.list {
            match register.kind {
                RegisterKind::Row { end: End::First, .. } => words[register.at + 1] = NO_ROW,
                RegisterKind::Row { end: End::Last, offset } => words[register.at..=register.at + offset].fill(NO_ROW),
                RegisterKind::Extreme { .. } => words[register.at] = NO_ROW,
                _ => {}
            }
        }
    }

    /// Takes a row in.
    ///
    /// # Errors
    /// A sum that overflows.
    pub fn take(&self, words: &mut [u64], taken: Taken, key: &KeyRows, rows: &RowStore) -> Result<(), OperatorError> {
        let place = key.place(taken.row).expect("a row that is taken is held");
        let word = u64::from(taken.row) | u64::from(taken.symbol) << 32;
        for register in self.list.iter().filter(|r| r.symbols & (1 << taken.symbol) != 0) {
            let words = &mut words[register.at..register.at + register.kind.words()];
            match &register.kind {
                RegisterKind::Row { end: End::First, offset } => {
                    // Counted no further than needed, so that equal registers mean an equal future.
                    if words[0] <= *offset as u64 {
                        if words[0] == *offset as u64 {
                            words[1] = word;
                        }
                        words[0] += 1;
                    }
                }
                RegisterKind::Row { end: End::Last, offset } => {
                    words.copy_within(0..*offset, 1);
                    words[0] = word;
                }
                RegisterKind::Count { column } => {
                    words[0] += u64::from(column.is_none_or(|c| !rows.columns[c].value(place).is_null()));
                }
                RegisterKind::SumInt { column } => {
                    if let Value::Int(value) = rows.columns[*column].value(place) {
                        words[0] = (words[0] as i64).checked_add(value).ok_or_else(|| overflow(&DataType::Int64))? as u64;
                        words[1] += 1;
                    }
                }
                RegisterKind::SumWide { column, output } => {
                    if let Value::Wide(value) = rows.columns[*column].value(place) {
                        let sum = wide(words).checked_add(value).ok_or_else(|| overflow(output))?;
                        (words[0], words[1]) = (sum as u64, (sum >> 64) as u64);
                        words[2] += 1;
                    }
                }
                RegisterKind::SumFloat { column, .. } => {
                    if let Value::Float(value) = rows.columns[*column].value(place) {
                        let mut sum = float_sum(words);
                        sum.add(value);
                        words.copy_from_slice(&float_words(&sum, words[4] + 1));
                    }
                }
                RegisterKind::Extreme { column, largest } => {
                    let column = &rows.columns[*column];
                    let value = column.value(place);
                    let better = if *largest { Ordering::Greater } else { Ordering::Less };
                    let best = (words[0] != NO_ROW).then(|| key.place(words[0] as u32)).flatten();
                    if !value.is_null() && best.is_none_or(|best| value.order(column.value(best)) == Some(better)) {
                        words[0] = word;
                    }
                }
            }
        }
        Ok(())
    }

    /// The row that register `index` points to: its number and symbol.
    #[inline]
    fn row(&self, index: usize, words: &[u64]) -> Option<(u32, u8)> {
        let register = &self.list[index];
        let word = match register.kind {
            RegisterKind::Row { end: End::First, .. } => words[register.at + 1],
            RegisterKind::Row { end: End::Last, offset } => words[register.at + offset],
            _ => words[register.at],
        };
        (word != NO_ROW).then_some((word as u32, (word >> 32) as u8))
    }

    /// The result of register `index`, which holds an aggregate.
    fn result<'a>(&self, index: usize, words: &[u64], key: &KeyRows, rows: &'a RowStore) -> Value<'a> {
        let register = &self.list[index];
        let own = &words[register.at..register.at + register.kind.words()];
        match &register.kind {
            RegisterKind::Count { .. } => Value::Int(own[0] as i64),
            RegisterKind::SumInt { .. } if own[1] > 0 => Value::Int(own[0] as i64),
            RegisterKind::SumWide { .. } if own[2] > 0 => Value::Wide(wide(own)),
            RegisterKind::SumFloat { mean, single, .. } if own[4] > 0 => {
                let sum = float_sum(own).value();
                let result = if *mean { sum / own[4] as f64 } else { sum };
                Value::Float(if *single { f64::from(result as f32) } else { result })
            }
            RegisterKind::Extreme { column, .. } => {
                self.row(index, words).and_then(|(row, _)| key.place(row)).map_or(Value::Null, |p| rows.columns[*column].value(p))
            }
            _ => Value::Null,
        }
    }
}

fn wide(words: &[u64]) -> i128 {
    (u128::from(words[0]) | u128::from(words[1]) << 64) as i128
}

/// Where a condition gets the value of one of its columns from.
pub(super) enum Source {
    /// A kept column of the current row or of one near it.
    Near {
        column: usize,
        shift: i64,
    },
    /// A kept column of the row that a register points to, or of one near that.
    Row {
        register: usize,
        column: usize,
        shift: i64,
    },
    /// The name of the symbol of the row that a register points to.
    Classifier {
        register: usize,
    },
    /// The name of the symbol that is being defined.
    Own(u8),
    Register(usize),
    /// An aggregate that is computed anew: index into [`SymbolCondition::slow`].
    Slow(usize),
    MatchNumber,
}

/// An aggregate over the rows of a chain, by an ordinary accumulator.
pub(super) struct SlowAggregate {
    pub call: AggregateCall,
    pub symbols: u64,
    /// The kept columns that are its arguments, and its filter.
    pub arguments: Vec<usize>,
    pub filter: Option<usize>,
}

impl SlowAggregate {
    /// The result over the rows at `places`.
    fn compute(&self, places: &[u32], rows: &RowStore) -> Result<ScalarValue, OperatorError> {
        let mut state = accumulator(&self.call, false)?;
        state.resize(1);
        let values = self.arguments.iter().map(|c| rows.columns[*c].gather(places)).collect::<Result<Vec<ArrayRef>, _>>()?;
        let filter = self.filter.map(|c| rows.columns[c].gather(places)).transpose()?;
        let slots = vec![0; places.len()];
        state.update(&Rows { slots: &slots, values: &values, kinds: None, mask: filter.as_ref().map(|f| f.as_boolean()) })?;
        Ok(ScalarValue::try_from_array(&state.values(&[0])?, 0)?)
    }
}

/// The part of a symbol's condition that looks something up.
#[derive(Default)]
pub(super) struct SymbolCondition {
    /// All must hold; their columns are indices into `sources`.
    pub conjuncts: Vec<Condition>,
    pub sources: Vec<Source>,
    pub slow: Vec<SlowAggregate>,
    /// Whether it looks only at neighbouring rows, so that it holds or not whatever was matched before.
    pub near: bool,
}

/// A row that is being tried as a symbol.
pub(super) struct Candidate<'a> {
    pub key: &'a KeyRows,
    pub rows: &'a RowStore,
    pub chains: &'a Chains,
    pub registers: &'a Registers,
    pub names: &'a [std::sync::Arc<str>],
    /// The row's number, and the symbol.
    pub taken: Taken,
    /// What the match took before it.
    pub link: u32,
    /// The registers with the row taken in.
    pub words: &'a [u64],
    pub match_number: i64,
}

impl SymbolCondition {
    /// Whether the condition holds for a candidate.
    ///
    /// # Errors
    /// A value that cannot be computed.
    pub fn holds(&self, candidate: &Candidate<'_>) -> Result<bool, OperatorError> {
        let Candidate { key, rows, registers, words, taken, .. } = candidate;
        let slow = if self.slow.is_empty() { Vec::new() } else { self.slow_values(candidate)? };
        let column = |column: usize, place: Option<u32>| place.map_or(Value::Null, |p| rows.columns[column].value(p));
        let load = |index: usize| -> Result<Value<'_>, OperatorError> {
            Ok(match &self.sources[index] {
                Source::Near { column: c, shift } => column(*c, key.near(taken.row, *shift)),
                Source::Row { register, column: c, shift } => {
                    registers.row(*register, words).map_or(Value::Null, |(row, _)| column(*c, key.near(row, *shift)))
                }
                Source::Classifier { register } => {
                    registers.row(*register, words).map_or(Value::Null, |(_, symbol)| Value::Text(&candidate.names[symbol as usize]))
                }
                Source::Own(symbol) => Value::Text(&candidate.names[*symbol as usize]),
                Source::Register(register) => registers.result(*register, words, key, rows),
                Source::Slow(number) => scalar(&slow[*number]),
                Source::MatchNumber => Value::Int(candidate.match_number),
            })
        };
        for conjunct in &self.conjuncts {
            if !conjunct.holds(&load)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn slow_values(&self, candidate: &Candidate<'_>) -> Result<Vec<ScalarValue>, OperatorError> {
        let mut taken: Vec<Taken> = vec![candidate.taken];
        if candidate.link != NONE {
            taken.extend(candidate.chains.backwards(candidate.link));
        }
        taken.reverse();
        self.slow
            .iter()
            .map(|aggregate| {
                let counted = taken.iter().filter(|t| aggregate.symbols & (1 << t.symbol) != 0);
                let places: Vec<u32> = counted.filter_map(|t| candidate.key.place(t.row)).collect();
                aggregate.compute(&places, candidate.rows)
            })
            .collect()
    }
}

fn scalar(value: &ScalarValue) -> Value<'_> {
    match value {
        v if v.is_null() => Value::Null,
        ScalarValue::Boolean(Some(v)) => Value::Int(i64::from(*v)),
        ScalarValue::Int8(Some(v)) => Value::Int(i64::from(*v)),
        ScalarValue::Int16(Some(v)) => Value::Int(i64::from(*v)),
        ScalarValue::Int32(Some(v)) | ScalarValue::Date32(Some(v)) => Value::Int(i64::from(*v)),
        ScalarValue::Time32Second(Some(v)) | ScalarValue::Time32Millisecond(Some(v)) => Value::Int(i64::from(*v)),
        ScalarValue::Int64(Some(v))
        | ScalarValue::TimestampSecond(Some(v), _)
        | ScalarValue::TimestampMillisecond(Some(v), _)
        | ScalarValue::TimestampMicrosecond(Some(v), _)
        | ScalarValue::TimestampNanosecond(Some(v), _) => Value::Int(*v),
        ScalarValue::Float32(Some(v)) => Value::Float(f64::from(*v)),
        ScalarValue::Float64(Some(v)) => Value::Float(*v),
        ScalarValue::Decimal128(Some(v), ..) => Value::Wide(*v),
        ScalarValue::Utf8(Some(v)) => Value::Text(v),
        other => Value::Other(other),
    }
}
