//! The connectors by name: what a table's `'connector'` option may say.
//!
//! Those of this crate are [`CONNECTORS`]; other crates of the program add theirs with [`extend`].

use std::sync::{PoisonError, RwLock};

use arrow::datatypes::SchemaRef;
use tidemill_format::options::{OptionSpec, RawOptions, one_of};

use crate::{ConnectError, LookupTable, Sink, Source, blackhole, datagen, filesystem, nexmark, print, soccer, socket, stdio};

/// A connector as the registry knows it.
pub struct Connector {
    /// The name, as in `'connector' = 'filesystem'`.
    pub name: &'static str,
    /// One or two sentences for the reference page.
    pub help: &'static str,
    /// The options, those of the formats it can use excepted.
    pub specs: fn() -> Vec<OptionSpec>,
    /// Whether the options of a text format follow (`'format'`).
    pub takes_format: bool,
    /// Makes a source for a table with these physical columns; `None` if the connector has none.
    pub source: Option<SourceFactory>,
    /// Makes a sink; `None` if the connector has none.
    pub sink: Option<SinkFactory>,
    /// Makes a table that can be looked up; `None` if the connector has none.
    pub lookup: Option<LookupFactory>,
}

/// Makes a source of a table's physical columns and options.
pub type SourceFactory = fn(&SchemaRef, &mut RawOptions) -> Result<Box<dyn Source>, ConnectError>;
/// Makes a sink of a table's physical columns and options.
pub type SinkFactory = fn(&SchemaRef, &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError>;
/// Makes a table that can be looked up of a table's physical columns and options.
pub type LookupFactory = fn(&SchemaRef, &mut RawOptions) -> Result<Box<dyn LookupTable>, ConnectError>;

/// The connectors of this crate, in order of name.
pub static CONNECTORS: &[&Connector] = &[
    &blackhole::CONNECTOR,
    &datagen::CONNECTOR,
    &filesystem::CONNECTOR,
    &nexmark::CONNECTOR,
    &print::CONNECTOR,
    &crate::siddhi_tcp::CONNECTOR,
    &soccer::CONNECTOR,
    &socket::CONNECTOR,
    &stdio::STDIN,
    &stdio::STDOUT,
];

/// Connectors of other crates.
static MORE: RwLock<Vec<&'static Connector>> = RwLock::new(Vec::new());

/// Adds connectors for the life of the process. One whose name is known already is passed over, so that
/// this can be called again.
pub fn extend(connectors: &'static [&'static Connector]) {
    let mut more = MORE.write().unwrap_or_else(PoisonError::into_inner);
    for connector in connectors {
        if !CONNECTORS.iter().chain(more.iter()).any(|c| c.name == connector.name) {
            more.push(connector);
        }
    }
}

/// All connectors there are now, in order of name.
pub fn all() -> Vec<&'static Connector> {
    let more = MORE.read().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<&'static Connector> = CONNECTORS.iter().chain(more.iter()).copied().collect();
    all.sort_by_key(|c| c.name);
    all
}

/// The connector called `name`.
///
/// # Errors
/// Lists the names when there is none such, and says which was likely meant.
pub fn find(name: &str) -> Result<&'static Connector, ConnectError> {
    let all = all();
    all.iter().find(|c| c.name == name).copied().ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|c| c.name).collect();
        ConnectError::new(format!("there is no connector '{name}': {}", one_of(name, &names)))
    })
}

impl Connector {
    /// A source for a table.
    ///
    /// # Errors
    /// The connector cannot read, or an option is wrong.
    pub fn source(&self, schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Source>, ConnectError> {
        match self.source {
            Some(make) => make(schema, raw),
            None => Err(ConnectError::new(format!("{}: connector '{}' can only be written to, not read from", raw.owner(), self.name))),
        }
    }

    /// A sink for a table.
    ///
    /// # Errors
    /// The connector cannot write, or an option is wrong.
    pub fn sink(&self, schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
        match self.sink {
            Some(make) => make(schema, raw),
            None => Err(ConnectError::new(format!("{}: connector '{}' can only be read from, not written to", raw.owner(), self.name))),
        }
    }

    /// A table that can be looked up.
    ///
    /// # Errors
    /// The connector cannot be asked for keys, or an option is wrong.
    pub fn lookup(&self, schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn LookupTable>, ConnectError> {
        let Some(make) = self.lookup else {
            let able: Vec<_> = all().iter().filter(|c| c.lookup.is_some()).map(|c| c.name).collect();
            return Err(ConnectError::new(format!(
                "{}: connector '{}' cannot be looked up (FOR SYSTEM_TIME AS OF a processing time); those that can: {}",
                raw.owner(),
                self.name,
                able.join(", ")
            )));
        };
        make(schema, raw)
    }
}
