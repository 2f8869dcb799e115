//! The connector `blackhole`: a sink that takes everything and keeps nothing, for measuring what
//! comes before it.

use arrow::datatypes::SchemaRef;
use tidemill_block::Block;
use tidemill_format::options::RawOptions;

use crate::registry::Connector;
use crate::{Committable, ConnectError, Sink, SinkContext, Writer, WriterStats};

/// The connector.
pub static CONNECTOR: Connector = Connector {
    name: "blackhole",
    help: "Takes all rows and throws them away, for measuring a job without its output.",
    specs: Vec::new,
    takes_format: false,
    source: None,
    sink: Some(sink),
    lookup: None,
};

fn sink(_schema: &SchemaRef, _raw: &mut RawOptions) -> Result<Box<dyn Sink>, ConnectError> {
    Ok(Box::new(Blackhole))
}

struct Blackhole;

impl Sink for Blackhole {
    fn accepts_updates(&self) -> bool {
        true
    }

    fn gathers(&self) -> bool {
        false
    }

    fn writer(&self, _context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        Ok(Box::new(BlackholeWriter::default()))
    }
}

/// Counts rows and forgets them.
#[derive(Debug, Default)]
pub struct BlackholeWriter {
    rows: u64,
}

impl BlackholeWriter {
    /// How many rows it has taken.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl Writer for BlackholeWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.rows += block.rows() as u64;
        Ok(())
    }

    fn prepare(&mut self, _last: bool) -> Result<Vec<Committable>, ConnectError> {
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::Arc;
    use tidemill_block::text;

    #[test]
    fn counts_rows_of_every_kind() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let sink = CONNECTOR.sink(&schema, &mut RawOptions::new("table 't'", [])).unwrap();
        assert!(sink.accepts_updates());
        assert_eq!(sink.parallelism(), None);
        let mut writer = BlackholeWriter::default();
        writer.write(&text::parse(&schema, "1\n-U 1\n+U 2")).unwrap();
        writer.write(&text::parse(&schema, "-D 2")).unwrap();
        assert_eq!(writer.rows(), 4);
        assert_eq!(writer.prepare(true).unwrap(), Vec::<Committable>::new());
        let error = CONNECTOR.source(&schema, &mut RawOptions::new("table 't'", [])).err().unwrap().to_string();
        assert_eq!(error, "table 't': connector 'blackhole' can only be written to, not read from");
    }
}
