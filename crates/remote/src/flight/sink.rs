//! Rows published into a stream: each parallel writer is a publisher of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidemill_block::Block;
use tidemill_connect::{Committable, ConnectError, Sink, SinkContext, Waker, Writer, WriterStats};

use super::blocks::Gather;
use super::client::Client;
use super::options::FlightOptions;
use super::publisher::{Publisher, PublisherOptions};

/// The sink.
pub(super) struct FlightSink {
    pub options: FlightOptions,
    /// Shared by the writers.
    pub client: Client,
}

impl Sink for FlightSink {
    /// A checkpoint waits for the server, operators need not.
    fn own_thread(&self) -> bool {
        true
    }

    fn writer(&self, context: SinkContext) -> Result<Box<dyn Writer>, ConnectError> {
        let name = self.options.publisher.as_deref().unwrap_or(&context.run_id);
        let options = PublisherOptions {
            id: format!("{name}-{}", context.shard),
            keep: true,
            projected: false,
            window: self.options.window.0 as usize,
            reconnect: self.options.reconnect(),
        };
        let publisher = Publisher::start(self.client.clone(), context.schema.clone(), options, Waker::noop())?;
        Ok(Box::new(FlightWriter {
            publisher,
            connected: false,
            gather: Gather::new(self.options.block_rows.map(|n| n as usize)),
            cancelled: context.cancelled,
        }))
    }
}

struct FlightWriter {
    publisher: Publisher,
    /// The server has answered: rows can be numbered.
    connected: bool,
    gather: Gather,
    cancelled: Arc<AtomicBool>,
}

impl FlightWriter {
    fn send(&mut self, all: bool) -> Result<(), ConnectError> {
        while let Some(batch) = self.gather.next(all)? {
            if !self.connected {
                self.publisher.handshake(&self.cancelled)?;
                self.connected = true;
            }
            self.publisher.send(&batch, &self.cancelled)?;
        }
        Ok(())
    }
}

impl Writer for FlightWriter {
    fn write(&mut self, block: &Block) -> Result<(), ConnectError> {
        self.gather.push(block.batch.clone());
        self.send(false)
    }

    fn flush(&mut self) -> Result<(), ConnectError> {
        self.send(true)
    }

    fn prepare(&mut self, last: bool) -> Result<Vec<Committable>, ConnectError> {
        self.send(true)?;
        if self.connected {
            if last {
                self.publisher.close(&self.cancelled)?;
            } else {
                self.publisher.drain(&self.cancelled)?;
            }
        }
        Ok(Vec::new())
    }

    fn stats(&self) -> WriterStats {
        WriterStats { bytes: self.publisher.sent().bytes }
    }
}
