//! Columns to PostgreSQL's binary form: rows for `COPY … (FORMAT binary)`, arrays and single values for
//! parameters.
//!
//! A column is first brought into the numbers that go over the wire, the whole column at once, and checked
//! while that is done ([`prepare`](super::prepare)). Rows are then written a few hundred at a time: the size
//! of each row is added up column by column, which says where each row begins; then each column writes its
//! field of every row, in one loop of its own type. Nothing is allocated for a row.

use std::borrow::Cow;

use arrow::buffer::{BooleanBuffer, NullBuffer};

/// Rows written in one go: with rows of some 200 bytes, what they become stays in the second-level cache.
const ROWS_AT_ONCE: usize = 512;

/// What stands before the first row: signature, flags, length of an extension.
const HEADER: [u8; 19] = *b"PGCOPY\n\xFF\r\n\0\0\0\0\0\0\0\0\0";

/// What stands behind the last row.
const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

/// The length of a NULL.
const NULL: [u8; 4] = (-1i32).to_be_bytes();

/// A column as it goes over the wire.
pub(super) struct Column<'a> {
    /// Which values are NULL.
    pub nulls: Option<NullBuffer>,
    /// The values.
    pub cells: Cells<'a>,
}

/// The values of a column: numbers of a width, or slices of bytes.
pub(super) enum Cells<'a> {
    Bool(&'a BooleanBuffer),
    Two(Cow<'a, [i16]>),
    Four(Cow<'a, [i32]>),
    Eight(Cow<'a, [i64]>),
    Float(Cow<'a, [f32]>),
    Double(Cow<'a, [f64]>),
    /// Value `i` is `data[offsets[i]..offsets[i + 1]]`, behind `first` if there is one.
    Slices {
        offsets: Cow<'a, [i32]>,
        data: Cow<'a, [u8]>,
        first: Option<u8>,
    },
}

/// Rows in the form of `COPY`, piece by piece, with what stands before the first and behind the last.
pub(super) struct CopyRows<'a> {
    columns: Vec<Column<'a>>,
    rows: usize,
    next: usize,
    cursors: Vec<usize>,
    done: bool,
}

impl<'a> CopyRows<'a> {
    pub fn new(columns: Vec<Column<'a>>, rows: usize) -> Self {
        CopyRows { columns, rows, next: 0, cursors: Vec::with_capacity(ROWS_AT_ONCE), done: false }
    }

    /// The next piece, of `bytes` or somewhat more; `None` behind the last.
    pub fn piece(&mut self, bytes: usize) -> Option<Vec<u8>> {
        if self.done {
            return None;
        }
        let mut out = Vec::with_capacity(bytes + bytes / 8);
        if self.next == 0 {
            out.extend_from_slice(&HEADER);
        }
        while self.next < self.rows && out.len() < bytes {
            let rows = ROWS_AT_ONCE.min(self.rows - self.next);
            write_rows(&self.columns, self.next, rows, &mut self.cursors, &mut out);
            self.next += rows;
        }
        if self.next == self.rows {
            out.extend_from_slice(&TRAILER);
            self.done = true;
        }
        Some(out)
    }
}

/// Appends rows `from..from + rows` of the columns. `cursors` is scratch space.
fn write_rows(columns: &[Column<'_>], from: usize, rows: usize, cursors: &mut Vec<usize>, out: &mut Vec<u8>) {
    // Two bytes say how many fields there are, four how long each is.
    cursors.clear();
    cursors.resize(rows, 2 + 4 * columns.len());
    for column in columns {
        column.add_sizes(from, cursors);
    }
    let mut at = out.len();
    for cursor in cursors.iter_mut() {
        at += std::mem::replace(cursor, at);
    }
    out.resize(at, 0);
    let count = (columns.len() as i16).to_be_bytes();
    for cursor in cursors.iter_mut() {
        out[*cursor..*cursor + 2].copy_from_slice(&count);
        *cursor += 2;
    }
    for column in columns {
        column.write(from, cursors, out);
    }
}

impl Column<'_> {
    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|n| n.is_null(row))
    }

    /// Adds to `sizes` what the values from row `from` on take, without the four bytes of their lengths.
    fn add_sizes(&self, from: usize, sizes: &mut [usize]) {
        let width = match &self.cells {
            Cells::Bool(_) => 1,
            Cells::Two(_) => 2,
            Cells::Four(_) | Cells::Float(_) => 4,
            Cells::Eight(_) | Cells::Double(_) => 8,
            Cells::Slices { offsets, first, .. } => {
                let offsets = &**offsets;
                let extra = usize::from(first.is_some());
                for (i, size) in sizes.iter_mut().enumerate() {
                    if !self.is_null(from + i) {
                        *size += (offsets[from + i + 1] - offsets[from + i]) as usize + extra;
                    }
                }
                return;
            }
        };
        match &self.nulls {
            None => sizes.iter_mut().for_each(|size| *size += width),
            Some(nulls) => {
                for (i, size) in sizes.iter_mut().enumerate() {
                    *size += if nulls.is_valid(from + i) { width } else { 0 };
                }
            }
        }
    }

    /// Writes the field of the rows from `from` on, each where its cursor stands, and moves the cursors.
    fn write(&self, from: usize, cursors: &mut [usize], out: &mut [u8]) {
        let nulls = self.nulls.as_ref();
        match &self.cells {
            Cells::Bool(values) => fixed(nulls, from, cursors, out, |row| [u8::from(values.value(row))]),
            Cells::Two(values) => {
                let values = &**values;
                fixed(nulls, from, cursors, out, |row| values[row].to_be_bytes());
            }
            Cells::Four(values) => {
                let values = &**values;
                fixed(nulls, from, cursors, out, |row| values[row].to_be_bytes());
            }
            Cells::Eight(values) => {
                let values = &**values;
                fixed(nulls, from, cursors, out, |row| values[row].to_be_bytes());
            }
            Cells::Float(values) => {
                let values = &**values;
                fixed(nulls, from, cursors, out, |row| values[row].to_be_bytes());
            }
            Cells::Double(values) => {
                let values = &**values;
                fixed(nulls, from, cursors, out, |row| values[row].to_be_bytes());
            }
            Cells::Slices { offsets, data, first } => {
                let (offsets, data) = (&**offsets, &**data);
                for (i, cursor) in cursors.iter_mut().enumerate() {
                    let (row, mut at) = (from + i, *cursor);
                    if nulls.is_some_and(|n| n.is_null(row)) {
                        out[at..at + 4].copy_from_slice(&NULL);
                        *cursor = at + 4;
                        continue;
                    }
                    let value = &data[offsets[row] as usize..offsets[row + 1] as usize];
                    let length = value.len() + usize::from(first.is_some());
                    out[at..at + 4].copy_from_slice(&(length as i32).to_be_bytes());
                    at += 4;
                    if let Some(first) = first {
                        out[at] = *first;
                        at += 1;
                    }
                    out[at..at + value.len()].copy_from_slice(value);
                    *cursor = at + value.len();
                }
            }
        }
    }

    /// Appends the value of a row, without its length; false, and nothing appended, if it is NULL.
    pub fn append(&self, row: usize, out: &mut Vec<u8>) -> bool {
        if self.is_null(row) {
            return false;
        }
        match &self.cells {
            Cells::Bool(values) => out.push(u8::from(values.value(row))),
            Cells::Two(values) => out.extend_from_slice(&values[row].to_be_bytes()),
            Cells::Four(values) => out.extend_from_slice(&values[row].to_be_bytes()),
            Cells::Eight(values) => out.extend_from_slice(&values[row].to_be_bytes()),
            Cells::Float(values) => out.extend_from_slice(&values[row].to_be_bytes()),
            Cells::Double(values) => out.extend_from_slice(&values[row].to_be_bytes()),
            Cells::Slices { offsets, data, first } => {
                out.extend(first);
                out.extend_from_slice(&data[offsets[row] as usize..offsets[row + 1] as usize]);
            }
        }
        true
    }

    /// Appends rows `from..to` as an array of elements of the type `element`: dimensions, whether there are
    /// NULLs, type, length and first index; then the elements with their lengths.
    pub fn append_array(&self, from: usize, to: usize, element: u32, out: &mut Vec<u8>) {
        let nulls = (from..to).any(|row| self.is_null(row));
        let dimensions = i32::from(to > from);
        out.extend_from_slice(&dimensions.to_be_bytes());
        out.extend_from_slice(&i32::from(nulls).to_be_bytes());
        out.extend_from_slice(&element.to_be_bytes());
        if to == from {
            return;
        }
        out.extend_from_slice(&((to - from) as i32).to_be_bytes());
        out.extend_from_slice(&1i32.to_be_bytes());
        for row in from..to {
            let at = out.len();
            out.extend_from_slice(&NULL);
            if self.append(row, out) {
                let length = (out.len() - at - 4) as i32;
                out[at..at + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
    }
}

/// Writes numbers of `N` bytes behind their length.
#[inline]
fn fixed<const N: usize>(nulls: Option<&NullBuffer>, from: usize, cursors: &mut [usize], out: &mut [u8], bytes: impl Fn(usize) -> [u8; N]) {
    let length = (N as i32).to_be_bytes();
    let Some(nulls) = nulls else {
        for (i, cursor) in cursors.iter_mut().enumerate() {
            let field = &mut out[*cursor..*cursor + 4 + N];
            field[..4].copy_from_slice(&length);
            field[4..].copy_from_slice(&bytes(from + i));
            *cursor += 4 + N;
        }
        return;
    };
    for (i, cursor) in cursors.iter_mut().enumerate() {
        if nulls.is_null(from + i) {
            out[*cursor..*cursor + 4].copy_from_slice(&NULL);
            *cursor += 4;
        } else {
            let field = &mut out[*cursor..*cursor + 4 + N];
            field[..4].copy_from_slice(&length);
            field[4..].copy_from_slice(&bytes(from + i));
            *cursor += 4 + N;
        }
    }
}
