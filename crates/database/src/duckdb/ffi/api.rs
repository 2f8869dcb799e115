//! The functions of the library that are used, and how it is found.

use std::ffi::{OsString, c_char, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// The environment variable that names the library.
pub const LIBRARY_VARIABLE: &str = "TIDEMILL_DUCKDB_LIBRARY";

/// An object of the library.
pub(super) type Ptr = *mut c_void;
/// `duckdb_state`: zero is success.
pub(super) type State = i32;
/// Two words as the library lays them out (`duckdb_hugeint`, `duckdb_list_entry`, `duckdb_interval`), the low one first.
pub type Wide = [u64; 2];

/// `duckdb_result`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawResult {
    pub counts: [u64; 3],
    pub columns: Ptr,
    pub error: *mut c_char,
    pub data: Ptr,
}

/// `duckdb_decimal`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawDecimal {
    pub width: u8,
    pub scale: u8,
    pub value: Wide,
}

/// `duckdb_date`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawDate(pub i32);

/// `duckdb_time`, `duckdb_timestamp`, `duckdb_timestamp_ns`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawTime(pub i64);

macro_rules! api {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library that are used, by their names in `duckdb.h`.
        pub struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Results as they are made rather than whole; deprecated, so it may be missing one day.
            pub(super) duckdb_execute_prepared_streaming: Option<unsafe extern "C" fn(Ptr, *mut RawResult) -> State>,
            /// Drops what an appender still has; from DuckDB 1.5 on.
            pub(super) duckdb_appender_clear: Option<unsafe extern "C" fn(Ptr) -> State>,
            /// The functions are its: it is never unloaded, for DuckDB has threads.
            _library: Library,
        }

        impl Api {
            /// Finds the functions; the error is the name of one that is missing.
            fn of(library: Library) -> Result<Self, &'static str> {
                // SAFETY: the types are those of these functions in `duckdb.h`, which promises not to change them, and
                // the library is kept as long as the pointers are.
                unsafe {
                    $(
                        let found = library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(stringify!($name));
                        let $name = *found.map_err(|_| stringify!($name))?;
                    )*
                    let streaming =
                        library.get::<unsafe extern "C" fn(Ptr, *mut RawResult) -> State>("duckdb_execute_prepared_streaming");
                    let duckdb_execute_prepared_streaming = streaming.ok().map(|function| *function);
                    let clear = library.get::<unsafe extern "C" fn(Ptr) -> State>("duckdb_appender_clear");
                    let duckdb_appender_clear = clear.ok().map(|function| *function);
                    Ok(Api { $($name,)* duckdb_execute_prepared_streaming, duckdb_appender_clear, _library: library })
                }
            }
        }
    };
}

api! {
    duckdb_free(Ptr);
    duckdb_vector_size() -> u64;
    duckdb_create_config(*mut Ptr) -> State;
    duckdb_set_config(Ptr, *const c_char, *const c_char) -> State;
    duckdb_destroy_config(*mut Ptr);
    duckdb_open_ext(*const c_char, *mut Ptr, Ptr, *mut *mut c_char) -> State;
    duckdb_close(*mut Ptr);
    duckdb_connect(Ptr, *mut Ptr) -> State;
    duckdb_disconnect(*mut Ptr);
    duckdb_query(Ptr, *const c_char, *mut RawResult) -> State;
    duckdb_destroy_result(*mut RawResult);
    duckdb_result_error(*mut RawResult) -> *const c_char;
    duckdb_result_error_type(*mut RawResult) -> u32;
    duckdb_rows_changed(*mut RawResult) -> u64;
    duckdb_column_count(*mut RawResult) -> u64;
    duckdb_column_logical_type(*mut RawResult, u64) -> Ptr;
    duckdb_fetch_chunk(RawResult) -> Ptr;
    duckdb_prepare(Ptr, *const c_char, *mut Ptr) -> State;
    duckdb_destroy_prepare(*mut Ptr);
    duckdb_prepare_error(Ptr) -> *const c_char;
    duckdb_execute_prepared(Ptr, *mut RawResult) -> State;
    duckdb_bind_null(Ptr, u64) -> State;
    duckdb_bind_boolean(Ptr, u64, bool) -> State;
    duckdb_bind_int8(Ptr, u64, i8) -> State;
    duckdb_bind_int16(Ptr, u64, i16) -> State;
    duckdb_bind_int32(Ptr, u64, i32) -> State;
    duckdb_bind_int64(Ptr, u64, i64) -> State;
    duckdb_bind_uint64(Ptr, u64, u64) -> State;
    duckdb_bind_float(Ptr, u64, f32) -> State;
    duckdb_bind_double(Ptr, u64, f64) -> State;
    duckdb_bind_decimal(Ptr, u64, RawDecimal) -> State;
    duckdb_bind_varchar_length(Ptr, u64, *const c_char, u64) -> State;
    duckdb_bind_blob(Ptr, u64, *const c_void, u64) -> State;
    duckdb_bind_date(Ptr, u64, RawDate) -> State;
    duckdb_bind_time(Ptr, u64, RawTime) -> State;
    duckdb_bind_timestamp(Ptr, u64, RawTime) -> State;
    duckdb_bind_timestamp_tz(Ptr, u64, RawTime) -> State;
    duckdb_create_timestamp_ns(RawTime) -> Ptr;
    duckdb_bind_value(Ptr, u64, Ptr) -> State;
    duckdb_destroy_value(*mut Ptr);
    duckdb_create_logical_type(u32) -> Ptr;
    duckdb_destroy_logical_type(*mut Ptr);
    duckdb_logical_type_get_alias(Ptr) -> *mut c_char;
    duckdb_get_type_id(Ptr) -> u32;
    duckdb_decimal_width(Ptr) -> u8;
    duckdb_decimal_scale(Ptr) -> u8;
    duckdb_decimal_internal_type(Ptr) -> u32;
    duckdb_enum_internal_type(Ptr) -> u32;
    duckdb_enum_dictionary_size(Ptr) -> u32;
    duckdb_enum_dictionary_value(Ptr, u64) -> *mut c_char;
    duckdb_list_type_child_type(Ptr) -> Ptr;
    duckdb_array_type_child_type(Ptr) -> Ptr;
    duckdb_array_type_array_size(Ptr) -> u64;
    duckdb_map_type_key_type(Ptr) -> Ptr;
    duckdb_map_type_value_type(Ptr) -> Ptr;
    duckdb_struct_type_child_count(Ptr) -> u64;
    duckdb_struct_type_child_name(Ptr, u64) -> *mut c_char;
    duckdb_struct_type_child_type(Ptr, u64) -> Ptr;
    duckdb_create_data_chunk(*mut Ptr, u64) -> Ptr;
    duckdb_destroy_data_chunk(*mut Ptr);
    duckdb_data_chunk_reset(Ptr);
    duckdb_data_chunk_get_column_count(Ptr) -> u64;
    duckdb_data_chunk_get_vector(Ptr, u64) -> Ptr;
    duckdb_data_chunk_get_size(Ptr) -> u64;
    duckdb_data_chunk_set_size(Ptr, u64);
    duckdb_vector_get_column_type(Ptr) -> Ptr;
    duckdb_vector_get_data(Ptr) -> Ptr;
    duckdb_vector_get_validity(Ptr) -> *mut u64;
    duckdb_vector_ensure_validity_writable(Ptr);
    duckdb_list_vector_get_child(Ptr) -> Ptr;
    duckdb_list_vector_get_size(Ptr) -> u64;
    duckdb_list_vector_set_size(Ptr, u64) -> State;
    duckdb_list_vector_reserve(Ptr, u64) -> State;
    duckdb_struct_vector_get_child(Ptr, u64) -> Ptr;
    duckdb_array_vector_get_child(Ptr) -> Ptr;
    duckdb_appender_create_ext(Ptr, *const c_char, *const c_char, *const c_char, *mut Ptr) -> State;
    duckdb_appender_create_query(Ptr, *const c_char, u64, *mut Ptr, *const c_char, *mut *const c_char, *mut Ptr) -> State;
    duckdb_appender_add_column(Ptr, *const c_char) -> State;
    duckdb_append_data_chunk(Ptr, Ptr) -> State;
    duckdb_appender_flush(Ptr) -> State;
    duckdb_appender_destroy(*mut Ptr) -> State;
    duckdb_appender_error_data(Ptr) -> Ptr;
    duckdb_error_data_error_type(Ptr) -> u32;
    duckdb_error_data_message(Ptr) -> *const c_char;
    duckdb_destroy_error_data(*mut Ptr);
}

/// The library; loaded by the first who asks.
///
/// # Errors
/// It is not there or too old, with what to do.
pub fn library() -> Result<&'static Api, &'static str> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Api, String> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    let file: OsString = named.clone().unwrap_or_else(|| libloading::library_filename("duckdb"));
    // SAFETY: what runs when it is loaded is the library's own set-up, and whoever names a file trusts it.
    let library = unsafe { Library::new(&file) }.map_err(|e| {
        let place = if named.is_some() { format!(" ({LIBRARY_VARIABLE})") } else { String::new() };
        format!(
            "loading DuckDB's library '{}'{place}: {e}; DuckDB is not part of this program: install libduckdb \
             (https://duckdb.org/install, 'C/C++'), or set {LIBRARY_VARIABLE} to its path",
            file.display()
        )
    })?;
    Api::of(library).map_err(|missing| {
        format!("DuckDB's library '{}' has no function {missing}: DuckDB 1.4 or later is needed; install a newer libduckdb", file.display())
    })
}
