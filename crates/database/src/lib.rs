//! The connector `jdbc`: tables of relational databases, written, read and looked up, without Java. Beside it `postgres-cdc` and
//! `mysql-cdc`, which give a table and then every change of it.
//!
//! What it promises after a crash. A sink with a primary key writes upserts and deletes at once; replaying
//! them changes nothing. One without appends, and with a state directory rows and a mark of the checkpoint
//! become visible in one transaction ([`sink`] says how). A scan goes on behind the last value it has
//! handed over. What does not live here: what lookups cost and how many are under way (crate `operator`).
//!
//! - [`options`], [`url`]: what users write
//! - [`driver`]: what a store must be able to do; [`types`]: columns of tables and of statements
//! - [`session`]: a connection that is made again, transactions that are tried again
//! - [`sink`], [`source`], [`lookup`]: the three sides of a table; `cdc` (a feature): its changes
//! - [`sqlite`], [`postgres`], [`mysql`], [`duckdb`], [`odbc`], `sqlserver` and `oracle` (features): the stores;
//!   `filled` is what the last two have in common

#[cfg(feature = "cdc")]
mod cdc;
mod connector;
pub mod driver;
mod duckdb;
#[cfg(any(feature = "sqlserver", feature = "oracle"))]
mod filled;
mod lookup;
mod mysql;
mod odbc;
pub mod options;
#[cfg(feature = "oracle")]
mod oracle;
mod postgres;
mod session;
mod sink;
mod source;
mod sqlite;
#[cfg(feature = "sqlserver")]
mod sqlserver;
mod types;
pub mod url;

#[cfg(test)]
#[path = "../../../tests/not_run.rs"]
mod not_run;
#[cfg(test)]
mod tests;

pub use connector::JDBC;
use tidemill_connect::registry::{Connector, extend};

/// The connectors of this crate.
#[cfg(feature = "cdc")]
static CONNECTORS: &[&Connector] = &[&JDBC, &cdc::connector::MYSQL, &cdc::connector::POSTGRES];
#[cfg(not(feature = "cdc"))]
static CONNECTORS: &[&Connector] = &[&JDBC];

/// Adds the connectors of this crate to the registry; once, at the start of the process.
pub fn register() {
    extend(CONNECTORS);
}
