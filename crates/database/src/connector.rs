//! The entry of the registry: from a table's options to its source, sink or lookup table.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use tidemill_connect::lookup::CacheKind;
use tidemill_connect::lookup::full::FullTable;
use tidemill_connect::registry::Connector;
use tidemill_connect::{ConnectError, LookupOptions, LookupTable, Sink, Source};
use tidemill_format::options::{OptionSet, OptionSpec, RawOptions};

use crate::driver::{DbError, Driver, Target};
use crate::lookup::JdbcLookupTable;
use crate::options::{AskOptions, CommonOptions, ScanOptions, SinkOptions};
use crate::session::Access;
use crate::sink::JdbcSink;
use crate::source::JdbcSource;
use crate::url::{Scheme, Url};

/// What stands between the names of columns that the table tells its connector.
const BETWEEN: char = '\u{1f}';

/// The connector `jdbc`.
pub static JDBC: Connector = Connector {
    name: "jdbc",
    help: "A table of a relational database: SQLite, PostgreSQL, MySQL, MariaDB, DuckDB, SQL Server, Oracle, others by ODBC; without Java. \
           With a PRIMARY KEY rows are inserted, updated and deleted by key; without one they are appended, exactly once if there is a \
           state directory. Read whole, in parts or by polling; looked up by key.",
    specs,
    takes_format: false,
    source: Some(source),
    sink: Some(sink),
    lookup: Some(lookup),
};

fn specs() -> Vec<OptionSpec> {
    [CommonOptions::specs(), ScanOptions::specs(), SinkOptions::specs(), AskOptions::specs()].concat()
}

/// All options of a table: one that is read may be written by another statement.
struct Taken {
    owner: String,
    access: Access,
    target: Target,
    scan: ScanOptions,
    sink: SinkOptions,
    ask: AskOptions,
}

impl Taken {
    fn take(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let owner = raw.owner().to_string();
        let key = key(schema, raw)?;
        let common = CommonOptions::take(raw)?;
        common.check(raw)?;
        let (scan, sink, ask) = (ScanOptions::take(raw)?, SinkOptions::take(raw)?, AskOptions::take(raw)?);
        scan.check(raw)?;
        sink.check(raw)?;
        ask.check(raw)?;
        let mut url = Url::parse(common.url.reveal()).map_err(|why| ConnectError::new(format!("{owner}: option 'url': {why}")))?;
        // Empty ones are those of a job whose variables were not set.
        url.user = common.username.filter(|user| !user.is_empty()).or(url.user);
        url.password = common.password.filter(|password| !password.reveal().is_empty()).or(url.password);
        let driver = driver(&url).map_err(|e| ConnectError::from(e).at(&owner))?;
        let place = format!("{} at {url}", driver.name());
        let access = Access {
            driver,
            place,
            connect_timeout: common.connect_timeout,
            retry_timeout: common.retry_timeout,
            max_retries: sink.max_retries,
        };
        let target = Target { table: common.table.trim().to_string(), schema: schema.clone(), key };
        Ok(Taken { owner, access, target, scan, sink, ask })
    }

    /// Every column has a type in the store: found now rather than with the first row.
    fn check_types(&self) -> Result<(), ConnectError> {
        for (index, field) in self.target.schema.fields().iter().enumerate() {
            let dialect = self.access.driver.dialect();
            dialect.column_type(field, self.target.key.contains(&index)).map_err(|e| ConnectError::from(e).at(&self.owner))?;
        }
        Ok(())
    }

    fn source(self) -> Result<JdbcSource, ConnectError> {
        self.check_types()?;
        JdbcSource::new(self.owner, self.access, self.target, self.scan)
    }
}

/// The columns of the primary key, which only the table knows.
pub(crate) fn key(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Vec<usize>, ConnectError> {
    let mut key = Vec::new();
    for (name, value) in raw.take_prefixed("#") {
        if name == "primary-key" {
            for column in value.split(BETWEEN).filter(|n| !n.is_empty()) {
                let index = schema.index_of(column).map_err(|_| {
                    ConnectError::new(format!("{}: column '{column}' of the primary key is no physical column of the table", raw.owner()))
                })?;
                key.push(index);
            }
        }
    }
    Ok(key)
}

/// The driver for a URL.
pub(crate) fn driver(url: &Url) -> Result<Arc<dyn Driver>, DbError> {
    match url.scheme {
        Scheme::Sqlite => crate::sqlite::driver(url),
        Scheme::Postgres => crate::postgres::driver(url),
        Scheme::MySql | Scheme::MariaDb => crate::mysql::driver(url),
        Scheme::DuckDb => crate::duckdb::driver(url),
        Scheme::Odbc => crate::odbc::driver(url),
        #[cfg(feature = "sqlserver")]
        Scheme::SqlServer => crate::sqlserver::driver(url),
        #[cfg(not(feature = "sqlserver"))]
        Scheme::SqlServer => Err(DbError::fatal("option 'url': SQL Server is not built in; build with the feature 'sqlserver'")),
        #[cfg(feature = "oracle")]
        Scheme::Oracle => crate::oracle::driver(url),
        #[cfg(not(feature = "oracle"))]
        Scheme::Oracle => Err(DbError::fatal("option 'url': Oracle is not built in; build with the feature 'oracle'")),
    }
}

fn source(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    Ok(Box::new(Taken::take(schema, raw)?.source()?))
}

fn sink(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    let taken = Taken::take(schema, raw)?;
    taken.check_types()?;
    Ok(Box::new(JdbcSink::new(taken.owner, taken.access, taken.target, taken.sink)?))
}

fn lookup(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn LookupTable>, ConnectError> {
    let taken = Taken::take(schema, raw)?;
    let options = LookupOptions::checked(raw)?;
    if options.cache == CacheKind::Full {
        let owner = taken.owner.clone();
        return Ok(Box::new(FullTable::new(Arc::new(taken.source()?), options, &owner)?));
    }
    taken.check_types()?;
    Ok(Box::new(JdbcLookupTable::new(taken.owner, taken.access, taken.target, options, taken.ask.connections)))
}
