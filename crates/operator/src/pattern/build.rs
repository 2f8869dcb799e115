//! From the planner's specification to a machine: which columns of a row are kept, what each condition
//! looks at, and what need not be looked at.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion_physical_expr::expressions::Column as Bound;
use tidemill_plan::pattern::{AfterMatchSkip, End, RowsPerMatch};

use super::automaton::Automaton;
use super::chain::Chains;
use super::column::{Column, RowStore};
use super::group::Grouping;
use super::navigate::{RegisterKind, Registers, SlowAggregate, Source, SymbolCondition, symbol_bits};
use super::output::{Emitter, Gathered, GatheredAggregate, GatheredKind};
use super::run::Machine;
use super::scalar::{Condition, columns_of, remap};
use super::spec::{MatchNavigation, MatchNavigationKind, PatternMatchSpec};
use super::wait::Kin;
use crate::OperatorError;
use crate::aggregate::AggregateCall;
use crate::map::Expr;

/// The columns of a row that are kept while the row is.
pub(super) struct Kept {
    pub expressions: Vec<Expr>,
    pub types: Vec<DataType>,
}

/// A machine and what the operator needs to know of it.
pub(super) struct Built {
    pub machine: Machine,
    pub emitter: Emitter,
    pub kept: Kept,
    /// Rows on which none of these symbols (bits) is true can be passed over, if there are any.
    pub matters: Option<u64>,
    /// Every row must be seen, not only those of keys with partial matches and those that begin one.
    pub every_row: bool,
    /// The symbols that begin a match, as bits.
    pub begins: u64,
    /// Keys are kept when they have matched: for `MATCH_NUMBER`, or since they match only once.
    pub keeps_matched: bool,
    /// Keys are kept when their first row was seen: for `^`, and for absences that matches begin with.
    pub keeps_begun: bool,
}

impl Kept {
    /// The place of an expression over the input's columns.
    fn place(&mut self, expression: &Expr, spec: &PatternMatchSpec) -> Result<usize, OperatorError> {
        if let Some(place) = self.expressions.iter().position(|e| **e == **expression) {
            return Ok(place);
        }
        self.types.push(expression.data_type(&spec.input)?);
        self.expressions.push(expression.clone());
        Ok(self.expressions.len() - 1)
    }

    fn column(&mut self, index: usize, spec: &PatternMatchSpec) -> Result<usize, OperatorError> {
        let column: Expr = std::sync::Arc::new(Bound::new(spec.input.field(index).name(), index));
        self.place(&column, spec)
    }

    fn arguments(&mut self, call: &AggregateCall, spec: &PatternMatchSpec) -> Result<(Vec<usize>, Option<usize>), OperatorError> {
        let arguments = call.arguments.iter().map(|a| self.place(a, spec)).collect::<Result<Vec<_>, _>>()?;
        let filter = call.filter.as_ref().map(|f| self.place(f, spec)).transpose()?;
        Ok((arguments, filter))
    }
}

struct Builder<'a> {
    spec: &'a PatternMatchSpec,
    kept: Kept,
    registers: Registers,
    /// The register of a navigation.
    known: HashMap<usize, usize>,
    history: i64,
    lookahead: i64,
    /// Symbols whose rows somebody looks at, as bits.
    looked_at: u64,
    numbers_matches: bool,
}

impl Builder<'_> {
    fn width(&self) -> usize {
        self.spec.input.fields().len()
    }

    fn navigation(&self, column: usize) -> Result<(usize, &MatchNavigation), OperatorError> {
        let index = column - self.width();
        let found = self.spec.navigations.get(index).map(|n| (index, n));
        found.ok_or_else(|| OperatorError::new(format!("internal error: a pattern has no navigation {index}")))
    }

    fn register(&mut self, navigation: usize, symbols: u64, kind: RegisterKind) -> usize {
        self.looked_at |= symbols;
        *self.known.entry(navigation).or_insert_with(|| self.registers.add(symbols, kind))
    }

    fn near_rows(&mut self, shift: i64) {
        self.history = self.history.max(-shift);
        self.lookahead = self.lookahead.max(shift);
    }

    fn condition(&mut self, symbol: usize) -> Result<SymbolCondition, OperatorError> {
        let spec = self.spec;
        let looking = &spec.symbols[symbol].looking;
        let mut columns = Vec::new();
        looking.iter().for_each(|e| columns_of(e, &mut columns));
        let mut condition = SymbolCondition { near: true, ..SymbolCondition::default() };
        let mut types = Vec::new();
        for column in &columns {
            if *column < self.width() {
                let kept = self.kept.column(*column, spec)?;
                condition.sources.push(Source::Near { column: kept, shift: 0 });
                types.push(self.kept.types[kept].clone());
                continue;
            }
            let (index, navigation) = self.navigation(*column)?;
            let navigation = navigation.clone();
            types.push(navigation.data_type.clone());
            let source = self.source(symbol, index, &navigation, &mut condition.slow)?;
            condition.near &= matches!(source, Source::Near { .. } | Source::Own(_));
            condition.sources.push(source);
        }
        let place = |column: usize| columns.iter().position(|c| *c == column);
        for expression in looking {
            condition.conjuncts.push(Condition::new(&remap(expression, &place)?, &types)?);
        }
        Ok(condition)
    }

    /// Where a condition of `symbol` finds a navigation.
    fn source(
        &mut self,
        symbol: usize,
        index: usize,
        navigation: &MatchNavigation,
        slow: &mut Vec<SlowAggregate>,
    ) -> Result<Source, OperatorError> {
        let symbols = symbol_bits(navigation.symbols.as_deref());
        let current = |end: End, offset: usize| end == End::Last && offset == 0 && symbols & (1 << symbol) != 0;
        Ok(match &navigation.kind {
            MatchNavigationKind::Value { argument, end, offset, shift } => {
                let column = self.kept.place(argument, self.spec)?;
                self.near_rows(*shift);
                if current(*end, *offset) {
                    Source::Near { column, shift: *shift }
                } else {
                    let register = self.register(index, symbols, RegisterKind::Row { end: *end, offset: *offset });
                    Source::Row { register, column, shift: *shift }
                }
            }
            MatchNavigationKind::Classifier { end, offset, shift: 0 } => {
                if current(*end, *offset) {
                    Source::Own(symbol as u8)
                } else {
                    Source::Classifier { register: self.register(index, symbols, RegisterKind::Row { end: *end, offset: *offset }) }
                }
            }
            // PREV(CLASSIFIER()) is the symbol of the row that was taken before.
            MatchNavigationKind::Classifier { end: End::Last, offset, shift } if *shift < 0 && navigation.symbols.is_none() => {
                let offset = offset.saturating_add(shift.unsigned_abs() as usize);
                if offset > 1000 {
                    return Err(OperatorError::new("PREV(CLASSIFIER(), n) in DEFINE goes at most 1000 rows back"));
                }
                Source::Classifier { register: self.register(index, symbols, RegisterKind::Row { end: End::Last, offset }) }
            }
            MatchNavigationKind::Classifier { .. } => {
                return Err(OperatorError::new(
                    "PREV and NEXT of CLASSIFIER are supported in DEFINE only as PREV(CLASSIFIER(), n); use LAST(CLASSIFIER(…), n), or move the test to MEASURES and filter the result",
                ));
            }
            MatchNavigationKind::Aggregate(call) => {
                let (arguments, filter) = self.kept.arguments(call, self.spec)?;
                self.looked_at |= symbols;
                match RegisterKind::of_call(call, arguments.first().copied()) {
                    Some(kind) => Source::Register(self.register(index, symbols, kind)),
                    None => {
                        slow.push(SlowAggregate { call: call.clone(), symbols, arguments, filter });
                        Source::Slow(slow.len() - 1)
                    }
                }
            }
            MatchNavigationKind::MatchNumber => {
                self.numbers_matches = true;
                Source::MatchNumber
            }
        })
    }

    fn emitter(&mut self) -> Result<Emitter, OperatorError> {
        let spec = self.spec;
        let one = spec.rows == RowsPerMatch::One;
        let mut columns = Vec::new();
        spec.output.iter().for_each(|e| columns_of(e, &mut columns));
        let (mut current, mut navigations) = (Vec::new(), Vec::new());
        let (mut order, mut behind) = (Vec::new(), Vec::new());
        for column in columns {
            if column < self.width() {
                let kept = self.kept.column(column, spec)?;
                current.push((kept, self.kept.types[kept].clone()));
                order.push(column);
            } else {
                let navigation = self.navigation(column)?.1.clone();
                navigations.push(self.gathered(&navigation, one)?);
                behind.push(column);
            }
        }
        order.extend(behind);
        let place = |column: usize| order.iter().position(|c| *c == column);
        let output = spec.output.iter().map(|e| remap(e, &place)).collect::<Result<Vec<_>, _>>()?;
        let names = spec.symbols.iter().map(|s| s.name.clone()).collect();
        Ok(Emitter::new(spec.schema.clone(), output, spec.rows, names, &current, navigations))
    }

    fn gathered(&mut self, navigation: &MatchNavigation, one: bool) -> Result<Gathered, OperatorError> {
        let symbols = symbol_bits(navigation.symbols.as_deref());
        let mut looks = true;
        let kind = match &navigation.kind {
            MatchNavigationKind::Value { argument, end, offset, shift } => {
                self.near_rows(*shift);
                // Where a match begins and ends is known without looking.
                looks = *offset != 0 || navigation.symbols.is_some();
                let column = self.kept.place(argument, self.spec)?;
                let values = Column::new(&self.kept.types[column]);
                GatheredKind::Value { column, end: *end, offset: *offset, shift: *shift, values }
            }
            MatchNavigationKind::Classifier { end, offset, shift } => {
                GatheredKind::Classifier { end: *end, offset: *offset, shift: *shift, values: Column::new(&DataType::Utf8) }
            }
            MatchNavigationKind::Aggregate(call) => {
                let (arguments, filter) = self.kept.arguments(call, self.spec)?;
                let types: Vec<DataType> = arguments.iter().map(|a| self.kept.types[*a].clone()).collect();
                GatheredKind::Aggregate(Box::new(GatheredAggregate::new(call.clone(), arguments, filter, &types)))
            }
            MatchNavigationKind::MatchNumber => {
                self.numbers_matches = true;
                looks = false;
                GatheredKind::MatchNumber { values: Column::new(&DataType::Int64) }
            }
        };
        if looks {
            self.looked_at |= symbols;
        }
        Ok(Gathered::new(symbols, navigation.running && !one, kind))
    }
}

/// Rows before and behind a row that may be looked at.
const NEAR_ROWS_MAX: i64 = 1_000_000;

/// Builds a machine.
///
/// # Errors
/// A pattern or condition that cannot be compiled.
pub(super) fn build(spec: &PatternMatchSpec) -> Result<Built, OperatorError> {
    let automaton = Automaton::new(&spec.pattern, spec.contiguity)?;
    let mut builder = Builder {
        spec,
        kept: Kept { expressions: Vec::new(), types: Vec::new() },
        registers: Registers::default(),
        known: HashMap::new(),
        history: 0,
        lookahead: 0,
        looked_at: 0,
        numbers_matches: false,
    };
    let conditions = (0..spec.symbols.len()).map(|s| builder.condition(s)).collect::<Result<Vec<_>, _>>()?;
    let emitter = builder.emitter()?;
    let Builder { kept, registers, history, lookahead, mut looked_at, numbers_matches, .. } = builder;
    if history.max(lookahead) > NEAR_ROWS_MAX {
        return Err(OperatorError::new(format!("PREV and NEXT reach at most {NEAR_ROWS_MAX} rows far")));
    }
    if let AfterMatchSkip::ToFirst(symbols) | AfterMatchSkip::ToLast(symbols) = &spec.skip {
        looked_at |= symbol_bits(Some(symbols));
    }
    let one = spec.rows == RowsPerMatch::One;
    let unmatched = matches!(spec.rows, RowsPerMatch::All { unmatched: true, .. });
    let ends_at_end = automaton.states.iter().any(|s| s.accepts_at_end);
    // Where matches end behind rows that they did not take, it must be known which row was their last.
    let ends_behind = automaton.timed || (automaton.relaxed && ends_at_end);
    let transparent = if one && !ends_behind && !automaton.joint { !looked_at } else { 0 };
    let bits = |of: &dyn Fn(usize) -> bool| (0..spec.symbols.len()).filter(|s| of(*s)).fold(0u64, |bits, s| bits | 1 << s);
    let in_pattern = symbol_bits(Some(&spec.pattern.symbols()));
    let always = bits(&|s| spec.input_column.is_none() && spec.symbols[s].simple.is_empty() && spec.symbols[s].looking.is_empty());
    let registers_decide = conditions.iter().all(|c| c.slow.is_empty());
    let looks_back = bits(&|s| !conditions[s].near);
    let passes_over = one && history == 0 && lookahead == 0 && automaton.passes_over(always & in_pattern, transparent);
    let starts = [automaton.start, automaton.start_first].map(|s| &automaton.states[s as usize]);
    let anchored = automaton.start != automaton.start_first;
    let led = !automaton.leads.is_empty();
    let every_row = history > 0 || unmatched || anchored || led || starts.iter().any(|s| s.accepts);
    let begins = starts.iter().fold(0, |bits, s| bits | s.wanted);
    let pure: Vec<bool> = automaton.states.iter().map(|s| s.reach & looks_back == 0).collect();
    let by_mask = if registers.stride == 0 { bits(&|s| conditions[s].near && conditions[s].conjuncts.is_empty()) } else { 0 };
    let independent = spec.skip == AfterMatchSkip::ToNextRow && spec.every && !unmatched && !numbers_matches;
    let watched = registers.list.iter().fold(0u64, |bits, r| bits | r.symbols);
    let begun = |s: usize| automaton.states[s].is_live() && !automaton.is_start(s as u32);
    let decides = |s: usize| automaton.states[s].wanted | automaton.states[s].kills;
    let plain: Vec<bool> = (0..pure.len()).map(|s| begun(s) && decides(s) & (looks_back | watched) == 0).collect();
    // Attempts that wait for time do so each for its own.
    let alike = independent && !ends_behind && !automaton.joint;
    let grouping = Grouping::new(alike && (0..pure.len()).any(|s| plain[s] || (begun(s) && pure[s])), plain);
    let names: Vec<_> = spec.symbols.iter().map(|s| s.name.clone()).collect();
    let text = spec.pattern.to_sql(&|s| names[s].to_string());
    let seen = vec![0; automaton.states.len()];
    let machine = Machine {
        chains: Chains::new(registers.stride),
        rows: RowStore::new(&kept.types),
        automaton,
        conditions,
        by_mask,
        names,
        registers,
        pure,
        registers_decide,
        transparent,
        ends_behind,
        skip: spec.skip.clone(),
        every: spec.every,
        within_ms: spec.within_ms,
        bounds: spec.bounds,
        independent,
        history: history as u32,
        lookahead: lookahead as u32,
        text,
        dropped: 0,
        seen,
        steps: 0,
        words: Vec::new(),
        spare: Vec::new(),
        grouping,
        kin: Kin::default(),
    };
    Ok(Built {
        machine,
        emitter,
        kept,
        matters: passes_over.then_some(in_pattern & !always),
        every_row,
        begins,
        keeps_matched: numbers_matches || !spec.every,
        keeps_begun: anchored || led,
    })
}
