//! The entries of the registry: from a table's options to its source.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::datatypes::SchemaRef;
use tidemill_connect::registry::Connector;
use tidemill_connect::{Changelog, ConnectError, Source};
use tidemill_format::options::{OptionSet, RawOptions};

use super::options::{Mode, MysqlOptions, PostgresOptions};
use super::source::{CdcSource, MakeLog};
use crate::connector::{driver, key};
use crate::session::Access;
use crate::url::{Scheme, Url};

/// The connector `postgres-cdc`.
pub static POSTGRES: Connector = Connector {
    name: "postgres-cdc",
    help: "A table of PostgreSQL and every change of it, from logical replication: rows that are inserted, updated and deleted, each once, \
           in the order of commits.",
    specs: PostgresOptions::specs,
    takes_format: false,
    source: Some(postgres),
    sink: None,
    lookup: None,
};

/// The connector `mysql-cdc`.
pub static MYSQL: Connector = Connector {
    name: "mysql-cdc",
    help: "A table of MySQL or MariaDB and every change of it, from the binary log: rows that are inserted, updated and deleted, \
           each once, in the order of commits.",
    specs: MysqlOptions::specs,
    takes_format: false,
    source: Some(mysql),
    sink: None,
    lookup: None,
};

/// The place of a database that options give part by part.
fn url(scheme: Scheme, (hostname, port, database): (&str, u16, &str), tls: [(&str, &Option<String>); 2]) -> Url {
    let hostname = hostname.trim().trim_start_matches('[').trim_end_matches(']');
    let given = tls.into_iter().filter_map(|(name, value)| value.as_ref().map(|v| (name.to_string(), v.clone())));
    let mut url = Url::empty(scheme);
    (url.host, url.port, url.database) = (hostname.to_string(), Some(port), database.to_string());
    url.parameters = given.collect();
    url
}

fn access(
    owner: &str,
    url: &Url,
    connect_timeout: std::time::Duration,
    retry_timeout: std::time::Duration,
) -> Result<Access, ConnectError> {
    let driver = driver(url).map_err(|e| ConnectError::from(e).at(owner))?;
    let place = format!("{} at {url}", driver.name());
    Ok(Access { driver, place, connect_timeout, retry_timeout, max_retries: 10 })
}

fn names(schema: &SchemaRef, key: &[usize]) -> Vec<String> {
    key.iter().map(|i| schema.field(*i).name().clone()).collect()
}

fn postgres(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let owner = raw.owner().to_string();
    let key = key(schema, raw)?;
    let options = PostgresOptions::take(raw)?;
    options.check(raw, !key.is_empty())?;
    let mut url = url(
        Scheme::Postgres,
        (&options.hostname, options.port, &options.database),
        [("ssl-mode", &options.ssl_mode), ("ssl-ca", &options.ssl_ca)],
    );
    url.ssl_mode().map_err(|why| ConnectError::new(format!("{owner}: option 'ssl-mode': {why}")))?;
    url.user = Some(options.username.clone());
    url.password = options.password.clone().filter(|password| !password.reveal().is_empty());
    let access = access(&owner, &url, options.connect_timeout, options.retry_timeout)?;
    let changelog = if options.mode == Mode::All { Changelog::All } else { Changelog::Upsert };
    let log = crate::postgres::replication::Settings::of(&url, &access, &options).map_err(|e| ConnectError::from(e).at(&owner))?;
    let make: MakeLog = Box::new(move |followed, committed| log.log(followed, committed));
    Ok(Box::new(CdcSource {
        owner,
        access,
        // Names with dots in them would be taken for several.
        table: format!("{}.{}", options.schema, options.table),
        key: names(schema, &key),
        startup: options.startup,
        changelog,
        fetch_size: options.fetch_size,
        make,
        committed: Arc::new(AtomicU64::new(0)),
        gate: Arc::default(),
    }))
}

fn mysql(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
    let owner = raw.owner().to_string();
    let key = key(schema, raw)?;
    let options = MysqlOptions::take(raw)?;
    let server_id = options.check(raw)?;
    let mut url = url(
        Scheme::MySql,
        (&options.hostname, options.port, &options.database),
        [("ssl-mode", &options.ssl_mode), ("ssl-ca", &options.ssl_ca)],
    );
    url.ssl_mode().map_err(|why| ConnectError::new(format!("{owner}: option 'ssl-mode': {why}")))?;
    url.user = Some(options.username.clone());
    url.password = options.password.clone().filter(|password| !password.reveal().is_empty());
    let access = access(&owner, &url, options.connect_timeout, options.retry_timeout)?;
    let log = crate::mysql::binlog::Settings::of(&url, &access, server_id).map_err(|e| ConnectError::from(e).at(&owner))?;
    let make: MakeLog = Box::new(move |followed, _| log.log(followed));
    Ok(Box::new(CdcSource {
        owner,
        access,
        table: format!("{}.{}", options.database, options.table),
        key: names(schema, &key),
        startup: options.startup,
        changelog: Changelog::All,
        fetch_size: options.fetch_size,
        make,
        committed: Arc::new(AtomicU64::new(0)),
        gate: Arc::default(),
    }))
}
