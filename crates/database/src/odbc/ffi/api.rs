//! The functions of the driver manager that are used, and how it is found; the numbers of `sql.h` and `sqlext.h`.

use std::ffi::{OsString, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// The environment variable that names the library.
pub const LIBRARY_VARIABLE: &str = "TIDEMILL_ODBC_LIBRARY";

/// What the driver manager's library is called. Its characters have 16 bits, as unixODBC's and Windows' have; those of
/// iODBC have 32.
const LIBRARY: &str = if cfg!(windows) {
    "odbc32.dll"
} else if cfg!(target_os = "macos") {
    "libodbc.2.dylib"
} else {
    "libodbc.so.2"
};

/// A handle.
pub(super) type Ptr = *mut c_void;
/// `SQLRETURN`.
pub(super) type Code = i16;

pub(super) const SUCCESS: Code = 0;
pub(super) const SUCCESS_WITH_INFO: Code = 1;
pub(super) const NO_DATA: Code = 100;

pub(super) const HANDLE_ENVIRONMENT: i16 = 1;
pub(super) const HANDLE_CONNECTION: i16 = 2;
pub(super) const HANDLE_STATEMENT: i16 = 3;

/// A length: NULL.
pub const NULL_DATA: isize = -1;
/// A length: the driver does not know how much there is.
pub const NO_TOTAL: isize = -4;

pub(super) const ATTRIBUTE_ODBC_VERSION: i32 = 200;
pub(super) const ODBC_3: usize = 3;
pub(super) const ATTRIBUTE_AUTOCOMMIT: i32 = 102;
pub(super) const ATTRIBUTE_LOGIN_TIMEOUT: i32 = 103;
pub(super) const ATTRIBUTE_CONNECTION_DEAD: i32 = 1209;
pub(super) const ATTRIBUTE_PARAM_BIND_TYPE: i32 = 18;
pub(super) const ATTRIBUTE_PARAM_STATUS: i32 = 20;
pub(super) const ATTRIBUTE_PARAMS_PROCESSED: i32 = 21;
pub(super) const ATTRIBUTE_PARAMSET_SIZE: i32 = 22;
pub(super) const ATTRIBUTE_ROW_STATUS: i32 = 25;
pub(super) const ATTRIBUTE_ROWS_FETCHED: i32 = 26;
pub(super) const ATTRIBUTE_ROW_ARRAY_SIZE: i32 = 27;

pub(super) const FREE_CLOSE: u16 = 0;
pub(super) const FREE_UNBIND: u16 = 2;
pub(super) const FREE_RESET_PARAMS: u16 = 3;

pub(super) const COMMIT: i16 = 0;
pub(super) const ROLLBACK: i16 = 1;
pub(super) const DRIVER_NO_PROMPT: u16 = 0;
pub(super) const FETCH_FIRST: u16 = 2;
pub(super) const FETCH_NEXT: u16 = 1;
pub(super) const PARAM_INPUT: i16 = 1;
pub(super) const PARAM_ERROR: u16 = 5;
pub(super) const ROW_ERROR: u16 = 5;
pub(super) const DESCRIBE_UNSIGNED: u16 = 8;
pub(super) const DESCRIBE_TYPE_NAME: u16 = 14;

macro_rules! api {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions of the driver manager that are used.
        pub struct Api {
            $(pub(super) $name: unsafe extern "system" fn($($argument),*) -> Code,)*
            /// The functions are its: it is never unloaded, for drivers may have threads.
            _library: Library,
        }

        impl Api {
            /// Finds the functions; the error is the name of one that is missing.
            fn of(library: Library) -> Result<Self, &'static str> {
                // SAFETY: the types are those of these functions in `sql.h`, `sqlext.h` and `sqlucode.h`, which have not
                // changed since ODBC 3.0, and the library is kept as long as the pointers are.
                unsafe {
                    $(
                        let found = library.get::<unsafe extern "system" fn($($argument),*) -> Code>($symbol);
                        let $name = *found.map_err(|_| $symbol)?;
                    )*
                    Ok(Api { $($name,)* _library: library })
                }
            }
        }
    };
}

api! {
    alloc_handle = "SQLAllocHandle" (i16, Ptr, *mut Ptr);
    free_handle = "SQLFreeHandle" (i16, Ptr);
    set_environment = "SQLSetEnvAttr" (Ptr, i32, Ptr, i32);
    data_sources = "SQLDataSourcesW" (Ptr, u16, *mut u16, i16, *mut i16, *mut u16, i16, *mut i16);
    set_connection = "SQLSetConnectAttrW" (Ptr, i32, Ptr, i32);
    get_connection = "SQLGetConnectAttrW" (Ptr, i32, Ptr, i32, *mut i32);
    driver_connect = "SQLDriverConnectW" (Ptr, Ptr, *const u16, i16, *mut u16, i16, *mut i16, u16);
    disconnect = "SQLDisconnect" (Ptr);
    get_info = "SQLGetInfoW" (Ptr, u16, Ptr, i16, *mut i16);
    end_transaction = "SQLEndTran" (i16, Ptr, i16);
    get_diagnostic = "SQLGetDiagRecW" (i16, Ptr, i16, *mut u16, *mut i32, *mut u16, i16, *mut i16);
    prepare = "SQLPrepareW" (Ptr, *const u16, i32);
    run = "SQLExecDirectW" (Ptr, *const u16, i32);
    execute = "SQLExecute" (Ptr);
    set_statement = "SQLSetStmtAttrW" (Ptr, i32, Ptr, i32);
    get_statement = "SQLGetStmtAttrW" (Ptr, i32, Ptr, i32, *mut i32);
    free_statement = "SQLFreeStmt" (Ptr, u16);
    row_count = "SQLRowCount" (Ptr, *mut isize);
    bind_parameter = "SQLBindParameter" (Ptr, u16, i16, i16, i16, usize, i16, Ptr, isize, *mut isize);
    count_columns = "SQLNumResultCols" (Ptr, *mut i16);
    describe_column = "SQLDescribeColW" (Ptr, u16, *mut u16, i16, *mut i16, *mut i16, *mut usize, *mut i16, *mut i16);
    column_attribute = "SQLColAttributeW" (Ptr, u16, u16, Ptr, i16, *mut i16, *mut isize);
    bind_column = "SQLBindCol" (Ptr, u16, i16, Ptr, isize, *mut isize);
    fetch = "SQLFetch" (Ptr);
    set_position = "SQLSetPos" (Ptr, usize, u16, u16);
    get_data = "SQLGetData" (Ptr, u16, i16, Ptr, isize, *mut isize);
}

/// The driver manager; loaded by the first who asks.
///
/// # Errors
/// It is not there, with what to do.
pub fn library() -> Result<&'static Api, &'static str> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Api, String> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    let file: OsString = named.clone().unwrap_or_else(|| LIBRARY.into());
    // SAFETY: what runs when it is loaded is the library's own set-up, and whoever names a file trusts it.
    let library = unsafe { Library::new(&file) }.map_err(|e| {
        let place = if named.is_some() { format!(" ({LIBRARY_VARIABLE})") } else { String::new() };
        format!(
            "loading ODBC's driver manager '{}'{place}: {e}; it is not part of this program: install unixodbc, and the database's ODBC \
             driver, or set {LIBRARY_VARIABLE} to the path of libodbc",
            file.display()
        )
    })?;
    Api::of(library).map_err(|missing| {
        format!(
            "ODBC's driver manager '{}' has no function {missing}: unixODBC 2.3 or later is needed; install a newer one",
            file.display()
        )
    })
}
