//! ODBC's driver manager, loaded when it is first needed: the only unsafe part of this driver.
//!
//! What is used is ODBC 3 with 16-bit characters, by name; nothing is linked. Each handle has an owner here that frees
//! it. Parameters are slices, bound for one execution and let go of before it returns; results are fetched into buffers
//! of [`Cursor`], which live as long as they are bound. What does not live here: what types mean, SQL, transactions.
//!
//! - [`api`]: the functions, and how the library is found
//! - [`value`]: how values travel, both ways
//! - [`cursor`]: the results of statements

mod api;
mod cursor;
mod value;

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use self::api::*;
pub use self::api::{Api, NO_TOTAL, NULL_DATA, library};
pub use self::cursor::{Cursor, Place};
pub use self::value::{Date, Fetched, Form, Parameter, SqlType, Timestamp, Values};

/// Characters of a message, of a name, of a connection string that a driver gives back.
const MESSAGE_UNITS: usize = 2048;
const NAME_UNITS: usize = 512;
/// Records of an error that are read.
const RECORDS_MAX: i16 = 8;
/// A status that no driver has set.
const UNTOLD: u16 = u16::MAX;

/// One thing that the driver or its manager says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// SQLSTATE, five characters.
    pub state: String,
    /// The database's own number.
    pub native: i32,
    /// In its words.
    pub message: String,
}

/// What is said of something that failed; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub Vec<Record>);

impl Failure {
    fn ours(message: impl Into<String>) -> Self {
        Failure(vec![Record { state: "HY000".into(), native: 0, message: message.into() }])
    }
}

fn succeeded(code: Code) -> bool {
    matches!(code, SUCCESS | SUCCESS_WITH_INFO)
}

/// An integer where an attribute may be a pointer.
fn number(value: usize) -> Ptr {
    ptr::without_provenance_mut(value)
}

/// A text for the library, with its end.
fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// A text of the library's, of which `length` units are said to be there.
fn shown(buffer: &[u16], length: i16) -> String {
    let length = usize::try_from(length).unwrap_or(0).min(buffer.len().saturating_sub(1));
    String::from_utf16_lossy(&buffer[..length])
}

/// What is said of the last call with a handle.
fn failure(api: &Api, kind: i16, handle: Ptr) -> Failure {
    let mut records = Vec::new();
    let mut message = [0u16; MESSAGE_UNITS];
    for number in 1..=RECORDS_MAX {
        let (mut state, mut native, mut length) = ([0u16; 6], 0i32, 0i16);
        let room = message.len() as i16;
        // SAFETY: the handle is alive, and the places outlive the call, which is told how long they are.
        let code =
            unsafe { (api.get_diagnostic)(kind, handle, number, state.as_mut_ptr(), &mut native, message.as_mut_ptr(), room, &mut length) };
        if !succeeded(code) {
            break;
        }
        records.push(Record { state: String::from_utf16_lossy(&state[..5]), native, message: shown(&message, length) });
    }
    if records.is_empty() { Failure::ours("the driver gave no reason") } else { Failure(records) }
}

/// A connection, or one that is being made.
pub struct Link {
    api: &'static Api,
    environment: Ptr,
    connection: Ptr,
}

// SAFETY: drivers of ODBC 3 and the manager take calls from any thread; a connection is used by one at a time.
unsafe impl Send for Link {}
// SAFETY: as above; the manager has a lock for each connection.
unsafe impl Sync for Link {}

impl Link {
    /// Handles without a connection.
    fn new(api: &'static Api) -> Result<Self, Failure> {
        let mut link = Link { api, environment: ptr::null_mut(), connection: ptr::null_mut() };
        // SAFETY: the places outlive the calls; the handles are freed by their owner.
        unsafe {
            if !succeeded((api.alloc_handle)(HANDLE_ENVIRONMENT, ptr::null_mut(), &mut link.environment)) {
                return Err(Failure::ours("the driver manager gave no environment"));
            }
            if !succeeded((api.set_environment)(link.environment, ATTRIBUTE_ODBC_VERSION, number(ODBC_3), 0))
                || !succeeded((api.alloc_handle)(HANDLE_CONNECTION, link.environment, &mut link.connection))
            {
                return Err(failure(api, HANDLE_ENVIRONMENT, link.environment));
            }
        }
        Ok(link)
    }

    /// Connects.
    ///
    /// # Errors
    /// Of the manager or the driver.
    pub fn open(api: &'static Api, string: &str, timeout: Duration) -> Result<Self, Failure> {
        let link = Link::new(api)?;
        let text = units(string);
        let length = i16::try_from(text.len() - 1).map_err(|_| Failure::ours("the connection string is too long"))?;
        let seconds = usize::try_from(timeout.as_secs().max(1)).unwrap_or(usize::MAX);
        let (mut whole, mut whole_length) = ([0u16; NAME_UNITS * 2], 0i16);
        let room = whole.len() as i16;
        // SAFETY: the handle is alive, and the texts outlive the calls, which are told how long they are. A driver that
        // knows no timeout says so, which changes nothing.
        let code = unsafe {
            (api.set_connection)(link.connection, ATTRIBUTE_LOGIN_TIMEOUT, number(seconds), 0);
            (api.driver_connect)(
                link.connection,
                ptr::null_mut(),
                text.as_ptr(),
                length,
                whole.as_mut_ptr(),
                room,
                &mut whole_length,
                DRIVER_NO_PROMPT,
            )
        };
        if succeeded(code) { Ok(link) } else { Err(link.failure()) }
    }

    fn failure(&self) -> Failure {
        failure(self.api, HANDLE_CONNECTION, self.connection)
    }

    fn checked(&self, code: Code) -> Result<(), Failure> {
        if succeeded(code) { Ok(()) } else { Err(self.failure()) }
    }

    /// A text that the driver says of itself or of the database; empty if it does not.
    pub fn info(&self, what: u16) -> String {
        let (mut text, mut bytes) = ([0u16; NAME_UNITS], 0i16);
        let room = (text.len() * 2) as i16;
        // SAFETY: the connection is alive, and the places outlive the call, which is told how long they are.
        let code = unsafe { (self.api.get_info)(self.connection, what, text.as_mut_ptr().cast(), room, &mut bytes) };
        if succeeded(code) { shown(&text, bytes / 2) } else { String::new() }
    }

    /// A number of 16 bits that it says; `None` if it does not.
    pub fn info_number(&self, what: u16) -> Option<u16> {
        // With room for one of 32 bits, if a driver is mistaken.
        let mut value = [0u16; 2];
        let room = size_of_val(&value) as i16;
        // SAFETY: the connection is alive, and the place outlives the call, which is told how long it is.
        let code = unsafe { (self.api.get_info)(self.connection, what, value.as_mut_ptr().cast(), room, ptr::null_mut()) };
        succeeded(code).then_some(value[0])
    }

    /// Whether each statement is a transaction by itself.
    ///
    /// # Errors
    /// Of the driver.
    pub fn set_autocommit(&self, on: bool) -> Result<(), Failure> {
        // SAFETY: the connection is alive; the attribute is a number.
        self.checked(unsafe { (self.api.set_connection)(self.connection, ATTRIBUTE_AUTOCOMMIT, number(usize::from(on)), 0) })
    }

    /// Ends the open transaction.
    ///
    /// # Errors
    /// Of the driver.
    pub fn end(&self, commit: bool) -> Result<(), Failure> {
        let how = if commit { COMMIT } else { ROLLBACK };
        // SAFETY: the connection is alive.
        self.checked(unsafe { (self.api.end_transaction)(HANDLE_CONNECTION, self.connection, how) })
    }

    /// Whether the driver knows that the connection is gone.
    pub fn is_dead(&self) -> bool {
        let mut dead = 0u32;
        let place: *mut u32 = &mut dead;
        // SAFETY: the connection is alive as a handle, and the place outlives the call.
        let code = unsafe {
            (self.api.get_connection)(self.connection, ATTRIBUTE_CONNECTION_DEAD, place.cast(), size_of::<u32>() as i32, ptr::null_mut())
        };
        succeeded(code) && dead == 1
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the handles were given by the manager, none is used after this, and statements have ended: they hold
        // it. A connection that was not made, or is gone, refuses the first two, which changes nothing.
        unsafe {
            if !self.connection.is_null() {
                (self.api.end_transaction)(HANDLE_CONNECTION, self.connection, ROLLBACK);
                (self.api.disconnect)(self.connection);
                (self.api.free_handle)(HANDLE_CONNECTION, self.connection);
            }
            if !self.environment.is_null() {
                (self.api.free_handle)(HANDLE_ENVIRONMENT, self.environment);
            }
        }
    }
}

/// The driver that a data source names in the manager's files; `None` if there is no such source.
pub fn driver_of(api: &'static Api, source: &str) -> Option<String> {
    let link = Link::new(api).ok()?;
    let (mut name, mut driver) = ([0u16; NAME_UNITS], [0u16; NAME_UNITS]);
    let mut direction = FETCH_FIRST;
    loop {
        let (mut name_length, mut driver_length) = (0i16, 0i16);
        let (room, driver_room) = (name.len() as i16, driver.len() as i16);
        // SAFETY: the environment is alive, and the places outlive the call, which is told how long they are.
        let code = unsafe {
            (api.data_sources)(
                link.environment,
                direction,
                name.as_mut_ptr(),
                room,
                &mut name_length,
                driver.as_mut_ptr(),
                driver_room,
                &mut driver_length,
            )
        };
        if !succeeded(code) {
            return None;
        }
        if shown(&name, name_length).eq_ignore_ascii_case(source) {
            return Some(shown(&driver, driver_length));
        }
        direction = FETCH_NEXT;
    }
}

/// What a driver says of a column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Its type: code, size, digits behind the point.
    pub kind: SqlType,
    /// It is a number without a sign.
    pub unsigned: bool,
    /// The database's name of its type; may be empty.
    pub type_name: String,
    /// NULL may be there, as far as is known.
    pub nullable: bool,
}

/// A statement.
pub struct Statement {
    raw: Ptr,
    link: Arc<Link>,
    /// Rows of parameters that it is set to.
    parameter_rows: usize,
}

// SAFETY: as for connections.
unsafe impl Send for Statement {}

impl Statement {
    /// One of a connection, without text.
    ///
    /// # Errors
    /// Of the driver.
    pub fn new(link: &Arc<Link>) -> Result<Self, Failure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the connection is alive, and the place outlives the call; the handle is freed by its owner.
        link.checked(unsafe { (link.api.alloc_handle)(HANDLE_STATEMENT, link.connection, &mut raw) })?;
        Ok(Statement { raw, link: link.clone(), parameter_rows: 1 })
    }

    /// One that is prepared.
    ///
    /// # Errors
    /// Of the driver or the database.
    pub fn prepare(link: &Arc<Link>, sql: &str) -> Result<Self, Failure> {
        let statement = Statement::new(link)?;
        let (text, length) = statement_text(sql)?;
        // SAFETY: statement and text are alive, and the length is the text's.
        statement.checked(unsafe { (link.api.prepare)(statement.raw, text.as_ptr(), length) })?;
        Ok(statement)
    }

    /// Runs a text and answers with the number of rows that it changed; 0 if that is not said.
    ///
    /// # Errors
    /// Of the driver or the database.
    pub fn run(&mut self, sql: &str) -> Result<u64, Failure> {
        let (text, length) = statement_text(sql)?;
        // SAFETY: statement and text are alive, and the length is the text's.
        let code = unsafe { (self.link.api.run)(self.raw, text.as_ptr(), length) };
        if code != NO_DATA {
            self.checked(code)?;
        }
        let rows = self.rows_changed();
        self.close();
        Ok(rows)
    }

    fn failure(&self) -> Failure {
        failure(self.link.api, HANDLE_STATEMENT, self.raw)
    }

    fn checked(&self, code: Code) -> Result<(), Failure> {
        if succeeded(code) { Ok(()) } else { Err(self.failure()) }
    }

    fn set(&self, attribute: i32, value: Ptr) -> Result<(), Failure> {
        // SAFETY: the statement is alive. Pointers that are set are to places that outlive their use, see the callers.
        self.checked(unsafe { (self.link.api.set_statement)(self.raw, attribute, value, 0) })
    }

    /// A number that is set; `None` if the driver does not say.
    fn get(&self, attribute: i32) -> Option<usize> {
        let mut value = 0usize;
        let place: *mut usize = &mut value;
        // SAFETY: the statement is alive, and the place outlives the call.
        let code = unsafe { (self.link.api.get_statement)(self.raw, attribute, place.cast(), 0, ptr::null_mut()) };
        succeeded(code).then_some(value)
    }

    /// Whether the driver takes many rows of parameters at once.
    pub fn takes_arrays(&mut self) -> bool {
        let taken = self.set(ATTRIBUTE_PARAMSET_SIZE, number(2)).is_ok() && self.get(ATTRIBUTE_PARAMSET_SIZE) == Some(2);
        taken && self.set(ATTRIBUTE_PARAMSET_SIZE, number(1)).is_ok()
    }

    /// Executes it with `rows` rows of parameters.
    ///
    /// # Errors
    /// Of the driver or the database, of any of the rows.
    pub fn execute(&mut self, parameters: &[Parameter<'_>], rows: usize) -> Result<(), Failure> {
        let rows = rows.max(1);
        let mut statuses = vec![UNTOLD; rows];
        let mut processed = [usize::MAX];
        let done = self.bind_and_execute(parameters, rows, &mut statuses, &mut processed);
        // SAFETY: the statement is alive. It forgets the slices, and the places for what became of the rows.
        unsafe { (self.link.api.free_statement)(self.raw, FREE_RESET_PARAMS) };
        let mut forgotten = Ok(());
        if rows > 1 {
            let status = self.set(ATTRIBUTE_PARAM_STATUS, ptr::null_mut());
            forgotten = status.and(self.set(ATTRIBUTE_PARAMS_PROCESSED, ptr::null_mut()));
        }
        done?;
        forgotten?;
        match processed[0] {
            usize::MAX => Ok(()),
            count if rows > 1 && count < rows => Err(Failure::ours(format!("the driver took {count} of {rows} rows of parameters"))),
            _ => Ok(()),
        }
    }

    fn bind_and_execute(
        &mut self,
        parameters: &[Parameter<'_>],
        rows: usize,
        statuses: &mut [u16],
        processed: &mut [usize],
    ) -> Result<(), Failure> {
        if self.parameter_rows != rows {
            self.set(ATTRIBUTE_PARAMSET_SIZE, number(rows))?;
            self.parameter_rows = rows;
        }
        if rows > 1 {
            // Columns, each an array.
            self.set(ATTRIBUTE_PARAM_BIND_TYPE, number(0))?;
            self.set(ATTRIBUTE_PARAM_STATUS, statuses.as_mut_ptr().cast())?;
            self.set(ATTRIBUTE_PARAMS_PROCESSED, processed.as_mut_ptr().cast())?;
        }
        for (parameter, position) in parameters.iter().zip(1u16..) {
            assert!(parameter.values.rows() >= rows && parameter.lengths.len() >= rows, "values for every row");
            let (values, width) = parameter.values.raw();
            let SqlType { code, size, digits } = parameter.kind;
            // SAFETY: the statement is alive. The slices have values and lengths for all rows, outlive the execution, are
            // only read (they are input), and are forgotten by the caller.
            self.checked(unsafe {
                (self.link.api.bind_parameter)(
                    self.raw,
                    position,
                    PARAM_INPUT,
                    parameter.values.form().c_type(),
                    code,
                    size,
                    digits,
                    values,
                    width as isize,
                    parameter.lengths.as_ptr().cast_mut(),
                )
            })?;
        }
        // SAFETY: the statement is prepared, and all that is bound is alive.
        let code = unsafe { (self.link.api.execute)(self.raw) };
        // A statement that changed nothing may say so in this way.
        if code != NO_DATA {
            self.checked(code)?;
        }
        // Some rows may have failed where the others went well.
        if statuses.contains(&PARAM_ERROR) { Err(self.failure()) } else { Ok(()) }
    }

    /// Rows that it has changed; 0 if that is not said.
    pub fn rows_changed(&self) -> u64 {
        let mut rows = 0isize;
        // SAFETY: the statement was executed, and the place outlives the call.
        let code = unsafe { (self.link.api.row_count)(self.raw, &mut rows) };
        if succeeded(code) { u64::try_from(rows).unwrap_or(0) } else { 0 }
    }

    /// Drops what is left of its result.
    pub fn close(&mut self) {
        // SAFETY: the statement is alive; without a result this does nothing.
        unsafe { (self.link.api.free_statement)(self.raw, FREE_CLOSE) };
    }

    /// The columns of its result; none if it has none.
    ///
    /// # Errors
    /// Of the driver or the database.
    pub fn columns(&self) -> Result<Vec<Described>, Failure> {
        let mut count = 0i16;
        // SAFETY: the statement is executed, and the place outlives the call.
        self.checked(unsafe { (self.link.api.count_columns)(self.raw, &mut count) })?;
        (1..=u16::try_from(count).unwrap_or(0)).map(|position| self.column(position)).collect()
    }

    fn column(&self, position: u16) -> Result<Described, Failure> {
        let mut name = [0u16; NAME_UNITS];
        let room = name.len() as i16;
        let (mut length, mut code, mut size, mut digits, mut nullable) = (0i16, 0i16, 0usize, 0i16, 0i16);
        // SAFETY: the statement has a result with such a column, and the places outlive the call, which is told how long
        // they are.
        self.checked(unsafe {
            (self.link.api.describe_column)(
                self.raw,
                position,
                name.as_mut_ptr(),
                room,
                &mut length,
                &mut code,
                &mut size,
                &mut digits,
                &mut nullable,
            )
        })?;
        let mut unsigned = 0isize;
        let (mut type_name, mut type_bytes) = ([0u16; NAME_UNITS], 0i16);
        let type_room = (type_name.len() * 2) as i16;
        // SAFETY: as above. What a driver does not say stays empty.
        let named = unsafe {
            (self.link.api.column_attribute)(self.raw, position, DESCRIBE_UNSIGNED, ptr::null_mut(), 0, ptr::null_mut(), &mut unsigned);
            (self.link.api.column_attribute)(
                self.raw,
                position,
                DESCRIBE_TYPE_NAME,
                type_name.as_mut_ptr().cast(),
                type_room,
                &mut type_bytes,
                ptr::null_mut(),
            )
        };
        Ok(Described {
            name: shown(&name, length),
            kind: SqlType { code, size, digits },
            unsigned: unsigned == 1,
            type_name: if succeeded(named) { shown(&type_name, type_bytes / 2) } else { String::new() },
            // SQL_NO_NULLS is 0; 2 is for not known.
            nullable: nullable != 0,
        })
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: it was given by the manager and is freed once; nothing of it is used after.
        unsafe { (self.link.api.free_handle)(HANDLE_STATEMENT, self.raw) };
    }
}

fn statement_text(sql: &str) -> Result<(Vec<u16>, i32), Failure> {
    let text = units(sql);
    let length = i32::try_from(text.len() - 1).map_err(|_| Failure::ours("the statement is too long"))?;
    Ok((text, length))
}
