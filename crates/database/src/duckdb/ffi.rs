//! DuckDB's C library, loaded when it is first needed: the only unsafe part of this driver.
//!
//! What is used is its stable C API (`duckdb.h`), by name; nothing is linked. Each object of the library has an
//! owner here that frees it, values of columns are reached as slices whose width is checked against the type that the
//! library says they have, and whatever a chunk points into has to live as long as the chunk. What does not live
//! here: what types mean, statements, transactions.
//!
//! - [`api`]: the functions, and how the library is found
//! - [`vector`]: chunks of rows and their columns

mod api;
mod vector;

use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

pub use self::api::{Api, Wide, library};
use self::api::{Ptr, RawDate, RawDecimal, RawResult, RawTime, State};
pub use self::vector::{Chunk, Plain, Vector, VectorMut};

/// What the library says of something that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// `duckdb_error_type`; 0 if it is not said.
    pub kind: u32,
    /// In its words.
    pub message: String,
}

impl Failure {
    fn ours(message: impl Into<String>) -> Self {
        Failure { kind: 0, message: message.into() }
    }
}

/// A text of the library's; empty for none.
fn shown(text: *const c_char) -> String {
    // SAFETY: the library gives NULL or a text that ends with a zero and lives until its object is destroyed, which
    // is after this call.
    if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}

fn c_text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::ours(format!("a character of code 0 in {text:?}")))
}

impl Api {
    /// A text that the library has allocated for its caller.
    fn take_text(&self, text: *mut c_char) -> String {
        let taken = shown(text);
        // SAFETY: it was allocated by the library and nobody else has it; NULL is fine.
        unsafe { (self.duckdb_free)(text.cast()) };
        taken
    }

    /// The most rows of a chunk.
    pub fn chunk_rows(&self) -> usize {
        // SAFETY: it takes nothing and answers with a constant.
        unsafe { (self.duckdb_vector_size)() as usize }
    }
}

/// A file that is open.
pub struct Database {
    api: &'static Api,
    raw: Ptr,
}

// SAFETY: the library's databases are for use by several threads.
unsafe impl Send for Database {}

impl Database {
    /// Opens a file, or makes one.
    ///
    /// # Errors
    /// Of the library.
    pub fn open(api: &'static Api, path: &str, parameters: &[(String, String)]) -> Result<Self, Failure> {
        let path = c_text(path)?;
        let mut texts = Vec::with_capacity(parameters.len());
        for (name, value) in parameters {
            texts.push((c_text(name)?, c_text(value)?));
        }
        let (mut raw, mut config, mut error) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: texts and the places for results outlive the calls, and the configuration is destroyed once, after
        // its last use.
        let opened = unsafe {
            if (api.duckdb_create_config)(&mut config) != 0 {
                return Err(Failure::ours("no memory for a configuration"));
            }
            let wrong = texts.iter().position(|(name, value)| (api.duckdb_set_config)(config, name.as_ptr(), value.as_ptr()) != 0);
            let opened = match wrong {
                Some(index) => {
                    let name = &parameters[index].0;
                    Err(Failure::ours(format!("the parameter '{name}' is not one of DuckDB's, or does not take its value")))
                }
                None if (api.duckdb_open_ext)(path.as_ptr(), &mut raw, config, &mut error) != 0 => Err(Failure::ours(api.take_text(error))),
                None => Ok(()),
            };
            (api.duckdb_destroy_config)(&mut config);
            opened
        };
        opened.map(|()| Database { api, raw })
    }

    /// A session; it must end before the database does.
    ///
    /// # Errors
    /// Of the library.
    pub fn connect(&self) -> Result<Session, Failure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the database is open, and the place for the result outlives the call.
        let state = unsafe { (self.api.duckdb_connect)(self.raw, &mut raw) };
        if state != 0 {
            return Err(Failure::ours("no connection to the open file"));
        }
        Ok(Session(Arc::new(Connected { api: self.api, raw })))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: it is open and nobody has it but this. Sessions keep what they need of it.
        unsafe { (self.api.duckdb_close)(&mut self.raw) };
    }
}

struct Connected {
    api: &'static Api,
    raw: Ptr,
}

// SAFETY: a connection's calls lock its context, so they may come from any thread.
unsafe impl Send for Connected {}
// SAFETY: as above.
unsafe impl Sync for Connected {}

impl Drop for Connected {
    fn drop(&mut self) {
        // SAFETY: it is connected, and statements have ended: they hold it.
        unsafe { (self.api.duckdb_disconnect)(&mut self.raw) };
    }
}

/// A session.
pub struct Session(Arc<Connected>);

impl Session {
    /// The library.
    pub fn api(&self) -> &'static Api {
        self.0.api
    }

    /// Runs a statement and answers with the rows that it changed.
    ///
    /// # Errors
    /// Of the library.
    pub fn run(&self, sql: &str) -> Result<u64, Failure> {
        let text = c_text(sql)?;
        let mut result = Answer::empty(self.api());
        // SAFETY: text and result outlive the call; the result is destroyed by its owner, as it must be after errors, too.
        let state = unsafe { (self.api().duckdb_query)(self.0.raw, text.as_ptr(), &mut result.raw) };
        result.checked(state)?;
        // SAFETY: the result is one of a statement that succeeded.
        Ok(unsafe { (self.api().duckdb_rows_changed)(&mut result.raw) })
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// Of the library.
    pub fn prepare(&self, sql: &str) -> Result<Statement, Failure> {
        let text = c_text(sql)?;
        let mut statement = Statement { raw: ptr::null_mut(), session: self.0.clone() };
        // SAFETY: text and place outlive the call; the statement is destroyed by its owner, as it must be after errors, too.
        let state = unsafe { (self.api().duckdb_prepare)(self.0.raw, text.as_ptr(), &mut statement.raw) };
        if state == 0 {
            return Ok(statement);
        }
        // SAFETY: the statement is not destroyed before the text is copied.
        Err(Failure::ours(shown(unsafe { (self.api().duckdb_prepare_error)(statement.raw) })))
    }
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Parameter<'a> {
    /// NULL.
    Null,
    /// BOOLEAN.
    Boolean(bool),
    /// TINYINT.
    I8(i8),
    /// SMALLINT.
    I16(i16),
    /// INTEGER.
    I32(i32),
    /// BIGINT.
    I64(i64),
    /// UBIGINT.
    U64(u64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL: value, width, scale.
    Decimal(i128, u8, u8),
    /// VARCHAR.
    Text(&'a str),
    /// BLOB.
    Bytes(&'a [u8]),
    /// DATE, days.
    Date(i32),
    /// TIME, microseconds.
    Time(i64),
    /// TIMESTAMP, microseconds.
    Timestamp(i64),
    /// TIMESTAMPTZ, microseconds.
    TimestampTz(i64),
    /// TIMESTAMP_NS.
    TimestampNs(i64),
}

/// A prepared statement.
pub struct Statement {
    raw: Ptr,
    session: Arc<Connected>,
}

// SAFETY: a statement's calls lock the context of its connection.
unsafe impl Send for Statement {}

impl Statement {
    /// Binds parameter `number`, from 1.
    ///
    /// # Errors
    /// There is no such parameter.
    pub fn bind(&mut self, number: usize, value: Parameter<'_>) -> Result<(), Failure> {
        let (api, raw, n) = (self.session.api, self.raw, number as u64);
        // SAFETY: the statement is prepared, and the library copies the value before it returns.
        let state = unsafe {
            match value {
                Parameter::Null => (api.duckdb_bind_null)(raw, n),
                Parameter::Boolean(v) => (api.duckdb_bind_boolean)(raw, n, v),
                Parameter::I8(v) => (api.duckdb_bind_int8)(raw, n, v),
                Parameter::I16(v) => (api.duckdb_bind_int16)(raw, n, v),
                Parameter::I32(v) => (api.duckdb_bind_int32)(raw, n, v),
                Parameter::I64(v) => (api.duckdb_bind_int64)(raw, n, v),
                Parameter::U64(v) => (api.duckdb_bind_uint64)(raw, n, v),
                Parameter::Float(v) => (api.duckdb_bind_float)(raw, n, v),
                Parameter::Double(v) => (api.duckdb_bind_double)(raw, n, v),
                Parameter::Decimal(v, width, scale) => {
                    (api.duckdb_bind_decimal)(raw, n, RawDecimal { width, scale, value: [v as u64, (v >> 64) as u64] })
                }
                Parameter::Text(v) => (api.duckdb_bind_varchar_length)(raw, n, v.as_ptr().cast(), v.len() as u64),
                Parameter::Bytes(v) => (api.duckdb_bind_blob)(raw, n, v.as_ptr().cast(), v.len() as u64),
                Parameter::Date(v) => (api.duckdb_bind_date)(raw, n, RawDate(v)),
                Parameter::Time(v) => (api.duckdb_bind_time)(raw, n, RawTime(v)),
                Parameter::Timestamp(v) => (api.duckdb_bind_timestamp)(raw, n, RawTime(v)),
                Parameter::TimestampTz(v) => (api.duckdb_bind_timestamp_tz)(raw, n, RawTime(v)),
                Parameter::TimestampNs(v) => {
                    let mut value = (api.duckdb_create_timestamp_ns)(RawTime(v));
                    let state = (api.duckdb_bind_value)(raw, n, value);
                    (api.duckdb_destroy_value)(&mut value);
                    state
                }
            }
        };
        if state == 0 { Ok(()) } else { Err(Failure::ours(format!("parameter {number} could not be bound"))) }
    }

    /// Runs it. `streaming`: the result is made while it is read, and another statement of the session would end it.
    ///
    /// # Errors
    /// Of the library.
    pub fn run(&mut self, streaming: bool) -> Result<Answer<'_>, Failure> {
        let api = self.session.api;
        let run = api.duckdb_execute_prepared_streaming.filter(|_| streaming).unwrap_or(api.duckdb_execute_prepared);
        let mut result = Answer::empty(api);
        // SAFETY: the statement is prepared, and the result is destroyed by its owner, as it must be after errors, too.
        let state = unsafe { run(self.raw, &mut result.raw) };
        result.checked(state)?;
        Ok(result)
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: it was given by the library and is destroyed once; NULL is fine.
        unsafe { (self.session.api.duckdb_destroy_prepare)(&mut self.raw) };
    }
}

/// The result of a statement.
pub struct Answer<'s> {
    api: &'static Api,
    raw: RawResult,
    statement: PhantomData<&'s mut Statement>,
}

impl Answer<'_> {
    fn empty(api: &'static Api) -> Self {
        let raw = RawResult { counts: [0; 3], columns: ptr::null_mut(), error: ptr::null_mut(), data: ptr::null_mut() };
        Answer { api, raw, statement: PhantomData }
    }

    fn checked(&mut self, state: State) -> Result<(), Failure> {
        if state == 0 { Ok(()) } else { Err(self.failure()) }
    }

    fn failure(&mut self) -> Failure {
        // SAFETY: the result was filled by the library; the text is copied before it is destroyed.
        unsafe {
            let message = shown((self.api.duckdb_result_error)(&mut self.raw));
            Failure { kind: (self.api.duckdb_result_error_type)(&mut self.raw), message }
        }
    }

    /// The types of the columns.
    pub fn types(&mut self) -> Vec<LogicalType> {
        // SAFETY: the result is one of a statement that succeeded, and columns are asked for that it has.
        unsafe {
            let count = (self.api.duckdb_column_count)(&mut self.raw);
            (0..count).map(|i| LogicalType { api: self.api, raw: (self.api.duckdb_column_logical_type)(&mut self.raw, i) }).collect()
        }
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// Of the library.
    pub fn fetch(&mut self) -> Result<Option<Chunk<'static>>, Failure> {
        // SAFETY: the result is one of a statement that succeeded; the chunk is the caller's.
        let raw = unsafe { (self.api.duckdb_fetch_chunk)(self.raw) };
        if !raw.is_null() {
            return Ok(Some(Chunk { api: self.api, raw, borrowed: PhantomData }));
        }
        let failure = self.failure();
        if failure.message.is_empty() { Ok(None) } else { Err(failure) }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; one that was never filled is all zeros, which the library passes over.
        unsafe { (self.api.duckdb_destroy_result)(&mut self.raw) };
    }
}

/// A type.
pub struct LogicalType {
    api: &'static Api,
    raw: Ptr,
}

// SAFETY: a type is not changed after it was made; the functions that take one read it.
unsafe impl Send for LogicalType {}
// SAFETY: as above.
unsafe impl Sync for LogicalType {}

impl LogicalType {
    /// VARCHAR.
    pub fn text(api: &'static Api) -> Self {
        // SAFETY: any number is accepted.
        LogicalType { api, raw: unsafe { (api.duckdb_create_logical_type)(super::shape::VARCHAR) } }
    }

    /// `duckdb_type`.
    pub fn id(&self) -> u32 {
        // SAFETY: the type is alive.
        unsafe { (self.api.duckdb_get_type_id)(self.raw) }
    }

    /// The name of a type that is made of another, such as `JSON`; empty for none.
    pub fn alias(&self) -> String {
        // SAFETY: the type is alive, the text the caller's.
        self.api.take_text(unsafe { (self.api.duckdb_logical_type_get_alias)(self.raw) })
    }

    /// Width and scale of a DECIMAL; zeros for other types.
    pub fn decimal(&self) -> (u8, u8) {
        // SAFETY: the type is alive; others than DECIMAL give 0.
        unsafe { ((self.api.duckdb_decimal_width)(self.raw), (self.api.duckdb_decimal_scale)(self.raw)) }
    }

    /// The values of an ENUM, in order.
    pub fn labels(&self) -> Vec<String> {
        // SAFETY: the type is alive, others than ENUM have no values, and the texts are the caller's.
        unsafe {
            let count = (self.api.duckdb_enum_dictionary_size)(self.raw);
            (0..u64::from(count)).map(|i| self.api.take_text((self.api.duckdb_enum_dictionary_value)(self.raw, i))).collect()
        }
    }

    /// The types that a LIST, ARRAY, MAP or STRUCT is made of, with the names of a STRUCT's; none of other types.
    pub fn parts(&self) -> Vec<(String, LogicalType)> {
        let (api, raw) = (self.api, self.raw);
        let part = |name: String, raw: Ptr| (name, LogicalType { api, raw });
        // SAFETY: each function is called on the type that it is for; the types and texts are the caller's.
        unsafe {
            match self.id() {
                super::shape::LIST => vec![part("item".into(), (api.duckdb_list_type_child_type)(raw))],
                super::shape::ARRAY => vec![part("item".into(), (api.duckdb_array_type_child_type)(raw))],
                super::shape::MAP => vec![
                    part("key".into(), (api.duckdb_map_type_key_type)(raw)),
                    part("value".into(), (api.duckdb_map_type_value_type)(raw)),
                ],
                super::shape::STRUCT => {
                    let count = (api.duckdb_struct_type_child_count)(raw);
                    let name = |i| api.take_text((api.duckdb_struct_type_child_name)(raw, i));
                    (0..count).map(|i| part(name(i), (api.duckdb_struct_type_child_type)(raw, i))).collect()
                }
                _ => Vec::new(),
            }
        }
    }

    /// The length of an ARRAY; 0 for other types.
    pub fn length(&self) -> usize {
        // SAFETY: the type is alive and an ARRAY.
        if self.id() == super::shape::ARRAY { unsafe { (self.api.duckdb_array_type_array_size)(self.raw) as usize } } else { 0 }
    }

    /// Bytes of a value in a vector; 0 where there are none or nothing is known of them.
    pub fn width(&self) -> usize {
        // SAFETY: each function is called on the type that it is for.
        let id = match self.id() {
            super::shape::DECIMAL => unsafe { (self.api.duckdb_decimal_internal_type)(self.raw) },
            super::shape::ENUM => unsafe { (self.api.duckdb_enum_internal_type)(self.raw) },
            id => id,
        };
        super::shape::width(id)
    }
}

impl Drop for LogicalType {
    fn drop(&mut self) {
        // SAFETY: it was given by the library and is destroyed once.
        unsafe { (self.api.duckdb_destroy_logical_type)(&mut self.raw) };
    }
}

/// Rows on their way into a table, or into a statement.
pub struct Appender<'s> {
    api: &'static Api,
    raw: Ptr,
    session: PhantomData<&'s Session>,
}

impl<'s> Appender<'s> {
    /// Into a table, whose name has at most catalog and schema before it. Columns are added next.
    ///
    /// # Errors
    /// Of the library.
    pub fn table(session: &'s Session, name: &[&str], columns: &[&str]) -> Result<Self, Failure> {
        let mut parts = Vec::with_capacity(3);
        for part in name {
            parts.push(c_text(part)?);
        }
        let part = |back: usize| name.len().checked_sub(back).map_or(ptr::null(), |i| parts[i].as_ptr());
        let mut appender = Appender { api: session.api(), raw: ptr::null_mut(), session: PhantomData };
        let api = appender.api;
        // SAFETY: the session and the texts are alive; the appender is destroyed by its owner, as it must be after errors, too.
        let state = unsafe { (api.duckdb_appender_create_ext)(session.0.raw, part(3), part(2), part(1), &mut appender.raw) };
        appender.checked(state)?;
        for column in columns {
            let column = c_text(column)?;
            // SAFETY: appender and text are alive.
            appender.checked(unsafe { (api.duckdb_appender_add_column)(appender.raw, column.as_ptr()) })?;
        }
        Ok(appender)
    }

    /// Into a statement that reads them as a table of this name and these columns.
    ///
    /// # Errors
    /// Of the library.
    pub fn statement(session: &'s Session, sql: &str, rows: &str, columns: &[(&str, &LogicalType)]) -> Result<Self, Failure> {
        let (sql, rows) = (c_text(sql)?, c_text(rows)?);
        let mut names = Vec::with_capacity(columns.len());
        for (name, _) in columns {
            names.push(c_text(name)?);
        }
        let mut types: Vec<Ptr> = columns.iter().map(|(_, t)| t.raw).collect();
        let mut texts: Vec<*const c_char> = names.iter().map(|n| n.as_ptr()).collect();
        let mut appender = Appender { api: session.api(), raw: ptr::null_mut(), session: PhantomData };
        // SAFETY: the session, the texts and the types are alive, the latter two are copied; the appender is destroyed by
        // its owner, as it must be after errors, too.
        let state = unsafe {
            (appender.api.duckdb_appender_create_query)(
                session.0.raw,
                sql.as_ptr(),
                columns.len() as u64,
                types.as_mut_ptr(),
                rows.as_ptr(),
                texts.as_mut_ptr(),
                &mut appender.raw,
            )
        };
        appender.checked(state)?;
        Ok(appender)
    }

    fn checked(&self, state: State) -> Result<(), Failure> {
        if state == 0 {
            return Ok(());
        }
        if self.raw.is_null() {
            return Err(Failure::ours("DuckDB gave no reason"));
        }
        // SAFETY: the appender is alive, the error the caller's, and its text is copied before it is destroyed.
        unsafe {
            let mut error = (self.api.duckdb_appender_error_data)(self.raw);
            let kind = (self.api.duckdb_error_data_error_type)(error);
            let message = shown((self.api.duckdb_error_data_message)(error));
            (self.api.duckdb_destroy_error_data)(&mut error);
            Err(Failure { kind, message })
        }
    }

    /// Takes the rows of a chunk, whose texts are copied.
    ///
    /// # Errors
    /// Of the library: types that differ, or of rows that went on to the table.
    pub fn push(&mut self, chunk: &mut Chunk<'_>) -> Result<(), Failure> {
        // SAFETY: appender and chunk are alive, and what the chunk borrows.
        self.checked(unsafe { (self.api.duckdb_append_data_chunk)(self.raw, chunk.raw) })
    }

    /// Brings all rows to their place.
    ///
    /// # Errors
    /// Of the library.
    pub fn finish(self) -> Result<(), Failure> {
        // SAFETY: the appender is alive.
        self.checked(unsafe { (self.api.duckdb_appender_flush)(self.raw) })
    }
}

impl Drop for Appender<'_> {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        // SAFETY: it was given by the library and is destroyed once. What it still has is dropped first, for destroying
        // it would write that; where the library is too old to drop it, it goes with the transaction, which has failed.
        unsafe {
            if let Some(clear) = self.api.duckdb_appender_clear {
                clear(self.raw);
            }
            (self.api.duckdb_appender_destroy)(&mut self.raw);
        }
    }
}
