//! What the columns of a sheet are, for queries that name a workbook without declaring a table.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use calamine::{Cell, DataRef};
use tidemill_block::value::DAY_MS;

use super::cell::{is_time, moment_ms};
use super::read::{Rows, names, open, sheet_of};
use super::{XlsxInput, XlsxOptions};
use crate::FormatError;
use crate::infer::unique_names;

/// Rows looked at.
const ROWS_MAX: usize = 50_000;
/// Cells looked at.
const CELLS_MAX: usize = 1_000_000;
/// From here on not every whole number is one of a sheet's.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// What the cells of a column have been so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    boolean: bool,
    whole: bool,
    fraction: bool,
    date: bool,
    moment: bool,
    time: bool,
    text: bool,
}

impl Seen {
    fn see(&mut self, cell: &DataRef<'_>, is_1904: bool) {
        match cell {
            DataRef::Bool(_) => self.boolean = true,
            DataRef::Int(_) => self.whole = true,
            DataRef::Float(v) if v.fract() == 0.0 && v.abs() <= EXACT_MAX => self.whole = true,
            DataRef::Float(_) => self.fraction = true,
            DataRef::DateTime(at) if is_time(at.as_f64()) => self.time = true,
            DataRef::DateTime(at) if at.is_duration() => self.fraction = true,
            DataRef::DateTime(at) => match moment_ms(at.as_f64(), is_1904) {
                Ok(ms) if ms % DAY_MS == 0 => self.date = true,
                Ok(_) => self.moment = true,
                Err(_) => self.fraction = true,
            },
            DataRef::DateTimeIso(text) if text.len() <= 10 => self.date = true,
            DataRef::DateTimeIso(_) => self.moment = true,
            DataRef::String(_) | DataRef::SharedString(_) | DataRef::DurationIso(_) => self.text = true,
            DataRef::Error(_) | DataRef::Empty => {}
        }
    }

    /// Whether some cell is no text.
    fn values(self) -> bool {
        self.boolean | self.whole | self.fraction | self.date | self.moment | self.time
    }

    /// The type that holds every value seen.
    fn data_type(self) -> DataType {
        let number = self.whole || self.fraction;
        let kinds = [self.boolean, number, self.date || self.moment, self.time, self.text];
        if kinds.iter().filter(|seen| **seen).count() != 1 || self.text {
            return DataType::Utf8;
        }
        match self {
            Seen { boolean: true, .. } => DataType::Boolean,
            Seen { fraction: true, .. } => DataType::Float64,
            Seen { whole: true, .. } => DataType::Int64,
            Seen { time: true, .. } => DataType::Time32(TimeUnit::Millisecond),
            Seen { moment: true, .. } => DataType::Timestamp(TimeUnit::Millisecond, None),
            _ => DataType::Date32,
        }
    }
}

/// Adds the cells of a row to what was seen.
fn look(seen: &mut Vec<Seen>, row: &[Cell<DataRef<'_>>], is_1904: bool) {
    for cell in row {
        let column = cell.get_position().1 as usize;
        if seen.len() <= column {
            seen.resize(column + 1, Seen::default());
        }
        seen[column].see(cell.get_value(), is_1904);
    }
}

/// The columns of the sheet that `options` say, and whether its first row names them: `header` says so, or, if that is not
/// known, a first row of nothing but texts.
///
/// # Errors
/// It is no workbook, or a damaged one; it has no such sheet, or there is nothing in it.
pub fn infer(
    shown: &str,
    input: Box<dyn XlsxInput>,
    options: &XlsxOptions,
    header: Option<bool>,
) -> Result<(SchemaRef, bool), FormatError> {
    let mut book = open(shown, input)?;
    let is_1904 = book.has_1904_epoch();
    let sheet = sheet_of(shown, &book, options)?;
    let mut rows = Rows::of(shown, &mut book, &sheet)?;
    let mut first = Vec::new();
    if rows.next(&mut first)?.is_none() {
        return Err(super::read::failed(shown, &format!("there is nothing in its sheet '{sheet}'; 'xlsx.sheet' names another")));
    }
    let (mut seen, mut row) = (Vec::new(), Vec::new());
    let (mut count, mut cells) = (0, 0);
    while count < ROWS_MAX && cells < CELLS_MAX && rows.next(&mut row)?.is_some() {
        look(&mut seen, &row, is_1904);
        (count, cells) = (count + 1, cells + row.len());
        row.clear();
    }
    let texts = first.iter().all(|cell| matches!(cell.get_value(), DataRef::String(_) | DataRef::SharedString(_)));
    let header = header.unwrap_or(texts);
    let titles = names(&first, is_1904);
    if !header {
        look(&mut seen, &first, is_1904);
    }
    let width = seen.len().max(if header { titles.len() } else { 0 });
    let named = |column: usize| header && first.iter().any(|cell| cell.get_position().1 as usize == column);
    let all = match header {
        true => {
            let mut all = titles;
            all.extend((all.len()..width).map(|column| format!("column{column}")));
            all
        }
        false => unique_names(vec![String::new(); width]),
    };
    seen.resize(width, Seen::default());
    let fields: Vec<Field> = all
        .into_iter()
        .enumerate()
        // Without names columns are known by their places, so that none may be left out.
        .filter(|(column, _)| !header || named(*column) || seen[*column].values() || seen[*column].text)
        .map(|(column, name)| Field::new(name, seen[column].data_type(), true))
        .collect();
    Ok((Schema::new(fields).into(), header))
}
