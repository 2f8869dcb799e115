//! Reads a sheet: its header, then rows, some thousand at a time, whose cells become columns.

use std::io::BufReader;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use calamine::{Cell, DataRef, Reader, SheetType, Xlsx, XlsxCellReader, XlsxError};

use super::cell::{Cells, show};
use super::{XlsxInput, XlsxOptions, XlsxRows, cell_name, check};
use crate::infer::unique_names;
use crate::{BadRecord, FormatError};

/// Cells held at once, at most, whatever rows were asked for: a row may have 16,384 of them, a cell takes some 50 bytes.
const CELLS_MAX: usize = 256 << 10;

/// A workbook that is being read.
pub(super) type Book = Xlsx<BufReader<Box<dyn XlsxInput>>>;
type Stream<'w> = XlsxCellReader<'w, BufReader<Box<dyn XlsxInput>>>;

/// Opens a workbook, whose table of texts is read at once.
///
/// # Errors
/// It is none, or it wants a password.
pub(super) fn open(shown: &str, input: Box<dyn XlsxInput>) -> Result<Book, FormatError> {
    Book::new(BufReader::new(input)).map_err(|e| match e {
        XlsxError::Password => failed(shown, &"it is encrypted with a password; save it without one"),
        other => failed(shown, &other),
    })
}

pub(super) fn failed(shown: &str, e: &dyn std::fmt::Display) -> FormatError {
    FormatError::data(format!("reading the workbook '{shown}': {e}"))
}

/// The name of the sheet that is meant.
///
/// # Errors
/// There is none of that name, or none at all.
pub(super) fn sheet_of(shown: &str, book: &Book, options: &XlsxOptions) -> Result<String, FormatError> {
    let sheets: Vec<&str> =
        book.sheets_metadata().iter().filter(|sheet| sheet.typ == SheetType::WorkSheet).map(|sheet| sheet.name.as_str()).collect();
    let Some(wanted) = &options.sheet else {
        return sheets.first().map(|name| name.to_string()).ok_or_else(|| failed(shown, &"it has no sheet with cells"));
    };
    match sheets.iter().find(|name| *name == wanted).or_else(|| sheets.iter().find(|name| name.eq_ignore_ascii_case(wanted))) {
        Some(name) => Ok(name.to_string()),
        None => Err(failed(shown, &format!("it has no sheet '{wanted}' ('xlsx.sheet'); it has: {}", sheets.join(", ")))),
    }
}

/// The rows of a sheet that have a value in some cell, from the first to the last.
pub(super) struct Rows<'w> {
    stream: Stream<'w>,
    /// The file and the sheet, for messages.
    shown: String,
    /// The first cell of the next row, or of the first one.
    next: Option<Cell<DataRef<'w>>>,
    /// The row that was read last.
    last: Option<u32>,
    /// The stream has said that it has ended, and must not be asked again.
    ended: bool,
}

impl<'w> Rows<'w> {
    /// Of this sheet of a workbook.
    ///
    /// # Errors
    /// It is damaged.
    pub fn of(shown: &str, book: &'w mut Book, sheet: &str) -> Result<Self, FormatError> {
        let shown = format!("{shown}, sheet {sheet}");
        let stream = book.worksheet_cells_reader(sheet).map_err(|e| failed(&shown, &e))?;
        Ok(Rows { stream, shown, next: None, last: None, ended: false })
    }

    /// Appends the cells of the next row to `cells`, empty ones left out; gives its number, counted from 0, or none at the end.
    ///
    /// # Errors
    /// The sheet is damaged.
    pub fn next(&mut self, cells: &mut Vec<Cell<DataRef<'w>>>) -> Result<Option<u32>, FormatError> {
        let mut row = None;
        if let Some(cell) = self.next.take() {
            row = Some(cell.get_position().0);
            cells.push(cell);
        }
        while !self.ended {
            let cell = self.stream.next_cell().map_err(|e| {
                let behind = cells.last().map_or(String::new(), |cell| {
                    let (row, column) = cell.get_position();
                    format!("behind cell {}: ", cell_name(row, column))
                });
                failed(&self.shown, &format!("{behind}{e}"))
            })?;
            let Some(cell) = cell else {
                self.ended = true;
                break;
            };
            if matches!(cell.get_value(), DataRef::Empty) {
                continue;
            }
            match row {
                Some(row) if cell.get_position().0 != row => {
                    self.next = Some(cell);
                    break;
                }
                Some(_) => {}
                None => row = Some(cell.get_position().0),
            }
            cells.push(cell);
        }
        if let Some(row) = row {
            if self.last.is_some_and(|last| last >= row) {
                return Err(failed(&self.shown, &format!("row {} comes after row {}", row + 1, self.last.unwrap_or(0) + 1)));
            }
            self.last = Some(row);
        }
        Ok(row)
    }
}

/// What the columns from A on are called by the cells of a header.
pub(super) fn names(header: &[Cell<DataRef<'_>>], is_1904: bool) -> Vec<String> {
    let mut names = vec![String::new(); header.iter().map(|cell| cell.get_position().1 as usize + 1).max().unwrap_or(0)];
    for cell in header {
        let name = &mut names[cell.get_position().1 as usize];
        name.clear();
        show(name, cell.get_value(), is_1904);
        *name = name.trim().to_string();
    }
    unique_names(names)
}

/// Which column of the sheet a column of the table is.
fn place(shown: &str, names: &[String], name: &str) -> Result<usize, FormatError> {
    if let Some(place) = names.iter().position(|n| n == name).or_else(|| names.iter().position(|n| n.eq_ignore_ascii_case(name))) {
        return Ok(place);
    }
    // Columns to the right of the last name are called by their places, too.
    let placed: Option<usize> = name.strip_prefix("column").and_then(|place| place.parse().ok());
    if let Some(place) = placed.filter(|place| *place >= names.len() && *place < super::SHEET_COLUMNS) {
        return Ok(place);
    }
    let held: Vec<&str> = names.iter().map(String::as_str).collect();
    let why = format!("there is no column '{name}'; the header has: {}", held.join(", "));
    Err(failed(shown, &why))
}

/// Reads the sheet that `options` say of a workbook: the columns `projection` of the declared columns `physical`. Rows are
/// given to `emit`, up to `batch_rows` at a time, until it says false. They are numbered from 0, the header and blank rows left
/// out; those before row `start` are passed over.
///
/// # Errors
/// It is no workbook, or a damaged one; the sheet, or a column, is not there.
pub fn read(
    shown: &str,
    input: Box<dyn XlsxInput>,
    options: &XlsxOptions,
    physical: &SchemaRef,
    projection: &[usize],
    start: u64,
    batch_rows: usize,
    emit: &mut dyn FnMut(XlsxRows) -> bool,
) -> Result<(), FormatError> {
    check(physical)?;
    let mut book = open(shown, input)?;
    let is_1904 = book.has_1904_epoch();
    let sheet = sheet_of(shown, &book, options)?;
    let mut rows = Rows::of(shown, &mut book, &sheet)?;
    let mut cells = Vec::new();
    let places = match options.header {
        false => projection.to_vec(),
        // An empty sheet has neither names nor rows.
        true => match rows.next(&mut cells)? {
            None => return passed(shown, start, 0),
            Some(_) => {
                let names = names(&cells, is_1904);
                let place = |index: &usize| place(&rows.shown, &names, physical.fields()[*index].name());
                projection.iter().map(place).collect::<Result<Vec<usize>, FormatError>>()?
            }
        },
    };
    cells.clear();
    let schema = Schema::new(projection.iter().map(|index| physical.fields()[*index].clone()).collect::<Vec<_>>());
    let mut batch = Batch { schema: schema.into(), places, is_1904, first: start, cells, starts: Vec::new(), rows: Vec::new() };
    let mut number = 0;
    loop {
        let begin = batch.cells.len();
        let Some(row) = rows.next(&mut batch.cells)? else { break };
        number += 1;
        if number <= start {
            batch.cells.truncate(begin);
            continue;
        }
        batch.starts.push(begin);
        batch.rows.push(row);
        if (batch.rows.len() >= batch_rows.max(1) || batch.cells.len() >= CELLS_MAX) && !emit(batch.take()?) {
            return Ok(());
        }
    }
    if !batch.rows.is_empty() {
        emit(batch.take()?);
    }
    passed(shown, start, number)
}

/// Whether there were as many rows as were to be passed over.
fn passed(shown: &str, start: u64, rows: u64) -> Result<(), FormatError> {
    if rows >= start {
        return Ok(());
    }
    let why = format!(
        "it has {rows} rows, but had at least {start} before: it was replaced; put the file back, or start the job without its checkpoint"
    );
    Err(failed(shown, &why))
}

/// Rows that become a batch.
struct Batch<'w> {
    schema: SchemaRef,
    /// For each column of `schema` which one of the sheet it is.
    places: Vec<usize>,
    is_1904: bool,
    /// The number of the first row.
    first: u64,
    /// The cells of all rows; where in them each row begins, and where in the sheet it stands.
    cells: Vec<Cell<DataRef<'w>>>,
    starts: Vec<usize>,
    rows: Vec<u32>,
}

/// There is no cell.
const NONE: u32 = u32::MAX;

impl Batch<'_> {
    /// The cells of a row.
    fn row(&self, row: usize) -> &[Cell<DataRef<'_>>] {
        let end = self.starts.get(row + 1).copied().unwrap_or(self.cells.len());
        &self.cells[self.starts[row]..end]
    }

    /// Makes columns of the rows, and forgets them.
    fn take(&mut self) -> Result<XlsxRows, FormatError> {
        let count = self.rows.len();
        // For each column its cells, by row.
        let width = self.places.iter().max().map_or(0, |place| place + 1);
        let mut columns = vec![usize::MAX; width];
        for (column, place) in self.places.iter().enumerate().rev() {
            columns[*place] = column;
        }
        let mut grid = vec![NONE; self.places.len() * count];
        for row in 0..count {
            let begin = self.starts[row];
            for (offset, cell) in self.row(row).iter().enumerate() {
                if let Some(column) = columns.get(cell.get_position().1 as usize).filter(|column| **column != usize::MAX) {
                    grid[column * count + row] = (begin + offset) as u32;
                }
            }
        }
        let mut wrong: Vec<Option<(usize, String)>> = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.places.len());
        for (number, (place, field)) in self.places.iter().zip(self.schema.fields()).enumerate() {
            // A column that is asked for twice.
            if columns[*place] != number {
                arrays.push(arrays[columns[*place]].clone());
                continue;
            }
            let at = &grid[number * count..][..count];
            let cell = |row: usize| match at[row] {
                NONE => None,
                index => Some(self.cells[index as usize].get_value()),
            };
            let mut bad = |row: usize, why: String| {
                if wrong.is_empty() {
                    wrong.resize(count, None);
                }
                wrong[row].get_or_insert((number, why));
            };
            arrays.push(Cells { rows: count, cell, is_1904: self.is_1904, field }.build(&mut bad)?);
        }
        let bad = wrong.iter().enumerate().filter_map(|(row, why)| why.as_ref().map(|(column, why)| self.bad(row, *column, why))).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let mut batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        if !wrong.is_empty() {
            let good: BooleanArray = wrong.iter().map(|why| Some(why.is_none())).collect();
            batch = filter_record_batch(&batch, &good)?;
        }
        self.first += count as u64;
        self.cells.clear();
        self.starts.clear();
        self.rows.clear();
        Ok(XlsxRows { batch, bad })
    }

    /// A row that has something wrong in a column.
    #[cold]
    fn bad(&self, row: usize, column: usize, why: &str) -> (BadRecord, String) {
        let mut raw = String::new();
        let mut at = 0;
        for cell in self.row(row) {
            let place = cell.get_position().1;
            while at < place {
                raw.push(',');
                at += 1;
            }
            show(&mut raw, cell.get_value(), self.is_1904);
        }
        let cell = cell_name(self.rows[row], self.places[column] as u32);
        let reason = format!("column '{}', cell {cell}: {why}", self.schema.field(column).name());
        (BadRecord { record: self.first + row as u64, offset: 0, reason, raw: raw.into_bytes() }, cell)
    }
}
