//! Calls that look at the same values: these are read once a block and kept once a row.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use tidemill_block::Block;

use super::cell::{Any, Arguments, Cell, Presence, with_cell};
use super::column::{Column, Lane};
use super::ends::{Extreme, Last, Nth};
use super::frame::{Places, Plan};
use super::op::{Driver, Kernel, Moves};
use super::{OverCall, ValueCall, ValueFunction};
use crate::OperatorError;
use crate::aggregate::AggregateCall;
use crate::map::Expr;

/// A group, whatever the type of its values.
pub(super) trait AnyGroup: Send {
    /// Adds a call over frame `frame` whose answers are number `answer`. `in_turn`: all rows have one key, and leave in the
    /// order in which they came.
    ///
    /// # Errors
    /// A function that cannot slide.
    fn add(&mut self, frame: usize, answer: usize, call: &OverCall, in_turn: bool) -> Result<(), OperatorError>;

    /// Reads the values of a block's rows.
    ///
    /// # Errors
    /// A value that an argument cannot compute.
    fn read(&mut self, block: &Block) -> Result<(), OperatorError>;

    /// Reads values that [`AnyGroup::save`] gave, and says how many columns they were.
    ///
    /// # Errors
    /// State of another shape.
    fn read_saved(&mut self, columns: &[ArrayRef]) -> Result<usize, OperatorError>;

    /// Keeps the values that were read, behind all others.
    fn append(&mut self);

    /// Keeps the values that were read, at places.
    fn put(&mut self, places: &[u32]);

    /// Moves rows in and out of a frame; `answers` gets the results, if they are wanted.
    ///
    /// # Errors
    /// An answer that does not fit its type.
    fn run(&mut self, frame: usize, plan: &Plan<'_>, answers: Option<&mut [Option<ArrayRef>]>) -> Result<(), OperatorError>;

    /// Makes room for keys below `slots`.
    fn resize(&mut self, slots: usize);

    /// A key is gone.
    fn clear(&mut self, slot: u32);

    /// No row before `place` is in a frame any more.
    fn forget(&mut self, place: u32);

    /// The values at places as columns.
    ///
    /// # Errors
    /// Values that cannot be put into an array.
    fn save(&self, places: &Places, rows: usize) -> Result<Vec<ArrayRef>, OperatorError>;

    /// Bytes.
    fn memory(&self) -> usize;
}

struct Group<C: Cell> {
    arguments: Vec<Expr>,
    types: Vec<DataType>,
    filter: Option<Expr>,
    column: Column<C::Item>,
    /// Frame, number of the answer, kernel.
    kernels: Vec<(usize, usize, Box<dyn Kernel<C>>)>,
    came: Lane<C::Item>,
    gone: Lane<C::Item>,
    /// Bytes that a value points to, on average in the newest block.
    heap: usize,
}

impl<C: Cell> Group<C> {
    fn new(arguments: &[Expr], types: &[DataType], filter: Option<&Expr>) -> Self {
        Group {
            arguments: arguments.to_vec(),
            types: types.to_vec(),
            filter: filter.cloned(),
            column: Column::new(),
            kernels: Vec::new(),
            came: Lane::new(Vec::new()),
            gone: Lane::new(Vec::new()),
            heap: 0,
        }
    }

    /// A column behind the values says which rows FILTER let through, where NULL does not say so.
    fn marks_apart(&self) -> bool {
        self.filter.is_some() && std::any::TypeId::of::<C>() == std::any::TypeId::of::<Arguments>()
    }
}

fn apply<T>(lane: &mut Lane<T>, mask: &BooleanArray) {
    lane.valid.resize(mask.len(), true);
    lane.valid.iter_mut().enumerate().for_each(|(row, valid)| *valid &= mask.is_valid(row) && mask.value(row));
}

impl<C: Cell> AnyGroup for Group<C> {
    fn add(&mut self, frame: usize, answer: usize, call: &OverCall, in_turn: bool) -> Result<(), OperatorError> {
        let kernel = match call {
            OverCall::Aggregate(call) if in_turn && matches!(call.name.as_str(), "min" | "max") => {
                C::extreme_in_turn(call.name == "max", call.output.data_type())
            }
            _ => None,
        };
        self.kernels.push((frame, answer, kernel.map_or_else(|| C::kernel(call), Ok)?));
        Ok(())
    }

    fn read(&mut self, block: &Block) -> Result<(), OperatorError> {
        let rows = block.rows();
        let values =
            self.arguments.iter().map(|e| Ok(e.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        self.came = C::read(&values, rows)?;
        if C::POINTS && rows > 0 {
            self.heap = self.came.values.iter().map(C::heap).sum::<usize>() / rows;
        }
        if let Some(filter) = &self.filter {
            let mask = filter.evaluate(&block.batch)?.into_array(rows)?;
            apply(&mut self.came, mask.as_boolean());
        }
        Ok(())
    }

    fn read_saved(&mut self, columns: &[ArrayRef]) -> Result<usize, OperatorError> {
        // A row that FILTER kept out was saved as NULL.
        let width = if std::any::TypeId::of::<C>() == std::any::TypeId::of::<Presence>() { 1 } else { self.types.len() };
        let rows = columns.first().map_or(0, |c| c.len());
        self.came = C::read(&columns[..width], rows)?;
        if self.marks_apart() {
            apply(&mut self.came, columns[width].as_boolean());
            return Ok(width + 1);
        }
        Ok(width)
    }

    fn append(&mut self) {
        self.column.append(&self.came.values, &self.came.valid);
    }

    fn put(&mut self, places: &[u32]) {
        for (row, place) in places.iter().enumerate() {
            self.column.put(*place, self.came.values[row].clone(), self.came.is_valid(row));
        }
    }

    fn run(&mut self, frame: usize, plan: &Plan<'_>, mut answers: Option<&mut [Option<ArrayRef>]>) -> Result<(), OperatorError> {
        let mut mine = self.kernels.iter().filter(|(f, ..)| *f == frame).peekable();
        if mine.peek().is_none() {
            return Ok(());
        }
        let values = mine.any(|(.., kernel)| kernel.wants_values());
        match &plan.gone {
            Places::Run(first) => self.column.copy_run(*first, plan.gone_slots.len(), values, &mut self.gone),
            Places::List(places) => self.column.copy(places, values, &mut self.gone),
        }
        let moves = Moves { plan, gone: &self.gone, came: &self.came, column: &self.column };
        for (_, answer, kernel) in self.kernels.iter_mut().filter(|(f, ..)| *f == frame) {
            match &mut answers {
                Some(answers) => answers[*answer] = Some(kernel.run(&moves)?),
                None => kernel.shift(&moves)?,
            }
        }
        Ok(())
    }

    fn resize(&mut self, slots: usize) {
        self.kernels.iter_mut().for_each(|(.., kernel)| kernel.resize(slots));
    }

    fn clear(&mut self, slot: u32) {
        self.kernels.iter_mut().for_each(|(.., kernel)| kernel.clear(slot));
    }

    fn forget(&mut self, place: u32) {
        self.column.forget(place);
    }

    fn save(&self, places: &Places, rows: usize) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut lane = Lane::new(Vec::new());
        match places {
            Places::Run(first) => self.column.copy_run(*first, rows, true, &mut lane),
            Places::List(places) => self.column.copy(places, true, &mut lane),
        }
        let marks: Option<BooleanArray> = self.marks_apart().then(|| (0..rows).map(|r| Some(lane.is_valid(r))).collect());
        let mut columns = C::save(lane, &self.types)?;
        columns.extend(marks.map(|m| std::sync::Arc::new(m) as ArrayRef));
        Ok(columns)
    }

    fn memory(&self) -> usize {
        self.column.memory() + self.column.rows() * self.heap + self.kernels.iter().map(|(.., k)| k.memory()).sum::<usize>()
    }
}

/// How a call sees its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Presence,
    Typed,
    Any,
    Arguments,
}

fn view(call: &OverCall) -> View {
    match call {
        OverCall::Aggregate(call) => {
            let first = call.argument_types.first();
            let extreme = matches!(call.name.as_str(), "min" | "max");
            match first {
                _ if call.distinct && !extreme => View::Arguments,
                _ if call.name == "count" => View::Presence,
                None => View::Arguments,
                Some(data_type) => {
                    let typed = with_cell!(data_type, C => extreme || <C as Cell>::arithmetic(call).is_some(), else false);
                    if typed { View::Typed } else { View::Arguments }
                }
            }
        }
        OverCall::Value(value) => with_cell!(&value.data_type, C => typed::<C>(), else View::Any),
        OverCall::Number { .. } => View::Presence,
    }
}

fn typed<C: Cell>() -> View {
    View::Typed
}

/// The kernel of a call over values of one type.
///
/// # Errors
/// A call that is not meant for one value.
pub(super) fn kernel<C: Cell>(call: &OverCall) -> Result<Box<dyn Kernel<C>>, OperatorError> {
    let wrong = |name: &str| OperatorError::new(format!("internal error: {name} has no kernel for this type"));
    match call {
        OverCall::Aggregate(call) if matches!(call.name.as_str(), "min" | "max") => {
            Ok(Box::new(Driver::new(Extreme::<C>::new(call.name == "max"), call.output.data_type())))
        }
        OverCall::Aggregate(call) => C::arithmetic(call).ok_or_else(|| wrong(&call.name)),
        OverCall::Value(ValueCall { function, data_type, ignore_nulls, .. }) => match function {
            ValueFunction::First => Ok(Box::new(Driver::new(Nth::new(0, *ignore_nulls), data_type))),
            ValueFunction::Nth(n) => Ok(Box::new(Driver::new(Nth::new(*n, *ignore_nulls), data_type))),
            ValueFunction::Last => Ok(Box::new(Driver::new(Last::new(*ignore_nulls), data_type))),
            ValueFunction::Lag { .. } => Err(wrong("LAG")),
        },
        OverCall::Number { .. } => Err(wrong("ROW_NUMBER")),
    }
}

/// The groups of calls over frames, each with the number of its frame and of its answers; `in_turn` as for
/// [`AnyGroup::add`].
///
/// # Errors
/// A function that cannot slide.
pub(super) fn groups(calls: &[(usize, usize, &OverCall)], in_turn: bool) -> Result<Vec<Box<dyn AnyGroup>>, OperatorError> {
    let mut groups: Vec<Box<dyn AnyGroup>> = Vec::new();
    let mut keys: Vec<(View, &[Expr], Option<&Expr>)> = Vec::new();
    for (frame, answer, call) in calls {
        let view = view(call);
        let (arguments, types, filter): (&[Expr], &[DataType], Option<&Expr>) = match call {
            OverCall::Aggregate(AggregateCall { arguments, argument_types, filter, .. }) => {
                (arguments.as_slice(), argument_types.as_slice(), filter.as_ref())
            }
            OverCall::Value(value) => (std::slice::from_ref(&value.argument), std::slice::from_ref(&value.data_type), None),
            OverCall::Number { .. } => (&[][..], &[][..], None),
        };
        let same = |(v, a, f): &(View, &[Expr], Option<&Expr>)| *v == view && *a == arguments && *f == filter;
        let at = match keys.iter().position(same) {
            Some(at) => at,
            None => {
                keys.push((view, arguments, filter));
                groups.push(match view {
                    View::Presence => Box::new(Group::<Presence>::new(arguments, types, filter)) as Box<dyn AnyGroup>,
                    View::Typed => {
                        with_cell!(&types[0], C => Box::new(Group::<C>::new(arguments, types, filter)) as Box<dyn AnyGroup>, else unreachable!("a view of a type without a cell"))
                    }
                    View::Any => Box::new(Group::<Any>::new(arguments, types, filter)),
                    View::Arguments => Box::new(Group::<Arguments>::new(arguments, types, filter)),
                });
                groups.len() - 1
            }
        };
        groups[at].add(*frame, *answer, call, in_turn)?;
    }
    Ok(groups)
}

/// One value of a cell's type.
///
/// # Errors
/// A value that cannot be an array.
pub(super) fn item<C: Cell>(value: &ScalarValue) -> Result<Option<C::Item>, OperatorError> {
    let lane = C::read(&[value.to_array()?], 1)?;
    Ok(lane.is_valid(0).then(|| lane.values[0].clone()))
}
