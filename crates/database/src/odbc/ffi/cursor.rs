//! A result: blocks of rows in bound columns, and long values piece by piece.

use super::api::*;
use super::value::{Date, Fetched, Form, Timestamp};
use super::{Failure, Statement, number};

/// Bytes of a long value that are asked for at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// How a column is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What its values look like; one of those that [`Fetched`] has.
    pub form: Form,
    /// Bytes of a value with its end.
    pub width: usize,
    /// Values may be of any length: the column is asked for by itself, row by row.
    pub long: bool,
}

impl Place {
    /// For numbers and structures.
    pub fn plain(form: Form) -> Self {
        Place { form, width: form.width().unwrap_or(1), long: false }
    }

    /// For values of up to `width` bytes, their end not counted.
    pub fn up_to(form: Form, width: usize) -> Self {
        // A multiple of two, so that UTF-16 lies where it should.
        Place { form, width: (width + form.terminator()).next_multiple_of(2), long: false }
    }

    /// For values of any length.
    pub fn long(form: Form) -> Self {
        Place { form, width: 2, long: true }
    }
}

struct Column {
    place: Place,
    /// Words, so that whatever lies there is aligned.
    data: Vec<u64>,
    lengths: Vec<isize>,
    /// The value of the row, of long columns.
    long: Vec<u8>,
}

impl Column {
    /// The values, as they lie there; of a type without invalid values, whose alignment a word's is enough for.
    ///
    /// # Safety
    /// `T` is one of the forms' types.
    unsafe fn values<T>(&self, rows: usize) -> &[T] {
        assert!(rows * size_of::<T>() <= self.data.len() * size_of::<u64>() && align_of::<T>() <= align_of::<u64>());
        // SAFETY: the words are initialised, there are enough of them, and any bits are a value of the type.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast(), rows) }
    }
}

/// The result of a statement that was executed. Columns are bound for as long as it lives.
pub struct Cursor<'s> {
    statement: &'s mut Statement,
    columns: Vec<Column>,
    /// The first column that is asked for by itself; those behind it are, too, for many drivers want that order.
    asked_from: usize,
    rows: usize,
    statuses: Vec<u16>,
    fetched: Vec<usize>,
    chunk: Vec<u64>,
}

impl<'s> Cursor<'s> {
    /// Binds the columns, for blocks of at most `rows` rows.
    ///
    /// # Errors
    /// Of the driver.
    pub fn open(statement: &'s mut Statement, places: &[Place], rows: usize) -> Result<Self, Failure> {
        let asked_from = places.iter().position(|p| p.long).unwrap_or(places.len());
        let mut rows = if asked_from < places.len() { 1 } else { rows.max(1) };
        if rows > 1 {
            rows = match statement.set(ATTRIBUTE_ROW_ARRAY_SIZE, number(rows)) {
                // It may have taken fewer.
                Ok(()) => statement.get(ATTRIBUTE_ROW_ARRAY_SIZE).unwrap_or(rows).clamp(1, rows),
                Err(_) => 1,
            };
        }
        let column = |place: &Place| Column {
            place: *place,
            data: vec![0; (place.width * rows).div_ceil(size_of::<u64>())],
            lengths: vec![NULL_DATA; rows],
            long: Vec::new(),
        };
        let columns = places.iter().map(column).collect();
        let mut cursor = Cursor { statement, columns, asked_from, rows, statuses: vec![0; rows], fetched: vec![0], chunk: Vec::new() };
        cursor.bind()?;
        Ok(cursor)
    }

    fn bind(&mut self) -> Result<(), Failure> {
        if self.rows > 1 {
            // The places are the cursor's, which takes them back before it ends.
            self.statement.set(ATTRIBUTE_ROW_STATUS, self.statuses.as_mut_ptr().cast())?;
            self.statement.set(ATTRIBUTE_ROWS_FETCHED, self.fetched.as_mut_ptr().cast())?;
        }
        for (column, position) in self.columns[..self.asked_from].iter_mut().zip(1u16..) {
            let Place { form, width, .. } = column.place;
            let (data, lengths) = (column.data.as_mut_ptr().cast(), column.lengths.as_mut_ptr());
            // SAFETY: the statement has such a column. Buffers hold `rows` values of this width and as many lengths, they
            // are not moved or resized, and are unbound before they are dropped.
            let code = unsafe {
                (self.statement.link.api.bind_column)(self.statement.raw, position, form.c_type(), data, width as isize, lengths)
            };
            self.statement.checked(code)?;
        }
        Ok(())
    }

    /// Rows of a block at most.
    pub fn block_rows(&self) -> usize {
        self.rows
    }

    /// The next block; answers with its rows, 0 at the end.
    ///
    /// # Errors
    /// Of the driver or the database.
    pub fn fetch(&mut self) -> Result<usize, Failure> {
        // SAFETY: the statement has a result, and what is bound is alive.
        let code = unsafe { (self.statement.link.api.fetch)(self.statement.raw) };
        if code == NO_DATA {
            return Ok(0);
        }
        self.statement.checked(code)?;
        let rows = if self.rows > 1 { self.fetched[0] } else { 1 };
        assert!(rows <= self.rows, "a block of {} rows has {rows}", self.rows);
        if self.rows > 1 && self.statuses[..rows].contains(&ROW_ERROR) {
            return Err(self.statement.failure());
        }
        for index in self.asked_from..self.columns.len() {
            if !self.columns[index].place.long {
                self.ask(index)?;
                continue;
            }
            let there = self.ask_long(index)?;
            let column = &mut self.columns[index];
            column.lengths[0] = if there { column.long.len() as isize } else { NULL_DATA };
        }
        Ok(rows)
    }

    /// The lengths of a column's values in bytes, [`NULL_DATA`] for NULL. Longer than its place: it was cut off.
    pub fn lengths(&self, column: usize) -> &[isize] {
        &self.columns[column].lengths
    }

    /// Bytes that a value of a column may have without being cut off.
    pub fn room(&self, column: usize) -> usize {
        let place = self.columns[column].place;
        if place.long { usize::MAX } else { place.width - place.form.terminator() }
    }

    /// The values of a column of the block, as many as a block has rows.
    pub fn values(&self, column: usize) -> Fetched<'_> {
        let (column, rows) = (&self.columns[column], self.rows);
        if column.place.long {
            return Fetched::Long(&column.long);
        }
        // SAFETY: integers, floats and structures of integers; any bits are a value.
        unsafe {
            match column.place.form {
                Form::I64 => Fetched::I64(column.values::<i64>(rows)),
                Form::U64 => Fetched::U64(column.values::<u64>(rows)),
                Form::F64 => Fetched::F64(column.values::<f64>(rows)),
                Form::Date => Fetched::Date(column.values::<Date>(rows)),
                Form::Timestamp => Fetched::Timestamp(column.values::<Timestamp>(rows)),
                _ => Fetched::Bytes(column.values::<u8>(rows * column.place.width), column.place.width),
            }
        }
    }

    /// Asks again for a value of the block that was cut off; `None` if it is NULL. For drivers that go to a row of a
    /// block and have its columns read again.
    ///
    /// # Errors
    /// Of the driver.
    pub fn whole(&mut self, column: usize, row: usize) -> Result<Option<&[u8]>, Failure> {
        if self.rows > 1 {
            // SAFETY: the statement is at a block with such a row. 0, 0: go there, leave locks as they are.
            let code = unsafe { (self.statement.link.api.set_position)(self.statement.raw, row + 1, 0, 0) };
            self.statement.checked(code)?;
        }
        let there = self.ask_long(column)?;
        Ok(there.then_some(self.columns[column].long.as_slice()))
    }

    /// Asks for the value of a column that is not bound.
    fn ask(&mut self, index: usize) -> Result<(), Failure> {
        let column = &mut self.columns[index];
        let Place { form, width, .. } = column.place;
        let (data, length) = (column.data.as_mut_ptr().cast(), column.lengths.as_mut_ptr());
        // SAFETY: the statement is at a row with such a column, and its buffer holds a value of this width and a length.
        let code = unsafe {
            let (api, raw) = (self.statement.link.api, self.statement.raw);
            (api.get_data)(raw, index as u16 + 1, form.c_type(), data, width as isize, length)
        };
        self.statement.checked(code)
    }

    /// Asks for the value of a column piece by piece; false if it is NULL.
    fn ask_long(&mut self, index: usize) -> Result<bool, Failure> {
        self.chunk.resize(CHUNK_BYTES / size_of::<u64>(), 0);
        let column = &mut self.columns[index];
        let form = column.place.form;
        let room = CHUNK_BYTES - form.terminator();
        column.long.clear();
        loop {
            let mut length = 0isize;
            // SAFETY: the statement is at a row with such a column, and the piece's place outlives the call, which is told
            // how long it is.
            let code = unsafe {
                let (api, raw) = (self.statement.link.api, self.statement.raw);
                (api.get_data)(raw, index as u16 + 1, form.c_type(), self.chunk.as_mut_ptr().cast(), CHUNK_BYTES as isize, &mut length)
            };
            if code == NO_DATA {
                break;
            }
            self.statement.checked(code)?;
            if length == NULL_DATA {
                return Ok(false);
            }
            let said = if length == NO_TOTAL { usize::MAX } else { usize::try_from(length).unwrap_or(0) };
            let taken = said.min(room);
            // SAFETY: the words are initialised, and so many bytes lie in them.
            let bytes = unsafe { std::slice::from_raw_parts(self.chunk.as_ptr().cast::<u8>(), taken) };
            column.long.extend_from_slice(bytes);
            if said <= room {
                break;
            }
        }
        Ok(true)
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        let api = self.statement.link.api;
        // SAFETY: the statement is alive; it drops the result and forgets the buffers.
        unsafe {
            (api.free_statement)(self.statement.raw, FREE_CLOSE);
            (api.free_statement)(self.statement.raw, FREE_UNBIND);
        }
        if self.rows > 1 {
            // What was taken once is taken again.
            let _ = self.statement.set(ATTRIBUTE_ROW_STATUS, std::ptr::null_mut());
            let _ = self.statement.set(ATTRIBUTE_ROWS_FETCHED, std::ptr::null_mut());
            let _ = self.statement.set(ATTRIBUTE_ROW_ARRAY_SIZE, number(1));
        }
    }
}
