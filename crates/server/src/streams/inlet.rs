//! A publisher as a task sees it: what the hub would wait for with a thread, it waits for with a future.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use tidemill_connect::Waker;
use tidemill_hub::{HubError, Incoming, Mark, Publisher, Sent, Stream};
use tokio::sync::Notify;

use crate::error::ApiError;
use crate::state::AppState;

/// A connected publisher.
pub(crate) struct Inlet {
    publisher: Publisher,
    signal: Arc<Notify>,
    /// How many rows it has sent, counted as the stream counts them.
    end: u64,
}

impl Inlet {
    /// Connects to a stream; with an empty `id` nothing is kept of the publisher.
    ///
    /// # Errors
    /// No running job reads the stream; too many publishers.
    pub fn open(state: &AppState, stream: &Arc<Stream>, id: &str) -> Result<Self, ApiError> {
        let signal = Arc::new(Notify::new());
        let waker = {
            let signal = signal.clone();
            Waker::new(move || signal.notify_one())
        };
        let publisher = stream.publisher(id, waker).map_err(|e| match e {
            // The job was there when the request came, and may be there again in a moment.
            HubError::NotPublished(_) => state.no_reader(stream.name()),
            other => other.into(),
        })?;
        let end = publisher.taken().offset;
        Ok(Inlet { publisher, signal, end })
    }

    /// The columns that the stream takes.
    pub fn schema(&self) -> SchemaRef {
        self.publisher.schema()
    }

    /// Its name stays known, see [`Publisher::keep_name`].
    pub fn keep_name(&self) {
        self.publisher.keep_name();
    }

    /// Where the publisher is to go on.
    pub fn mark(&self) -> Mark {
        self.publisher.taken()
    }

    /// How many of its rows are safe.
    ///
    /// # Errors
    /// The job has ended, or another publisher came under the same name.
    pub fn acknowledged(&self) -> Result<u64, ApiError> {
        Ok(self.publisher.check()?)
    }

    /// How many rows were sent.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The number of the row behind these.
    fn behind(&self, rows: &Incoming) -> u64 {
        rows.offset.unwrap_or(self.end) + rows.batch.num_rows() as u64
    }

    /// Hands rows over; gives them back if the stream's queue is full: [`Inlet::woken`], then again.
    ///
    /// # Errors
    /// A gap in the numbers of rows; the publisher is gone.
    pub fn try_send(&mut self, rows: Incoming) -> Result<Option<Incoming>, ApiError> {
        let end = self.behind(&rows);
        match self.publisher.try_send(rows)? {
            Sent::Taken => {
                self.end = self.end.max(end);
                Ok(None)
            }
            Sent::Full(rows) => Ok(Some(rows)),
        }
    }

    /// Hands rows over even if the stream's queue is full: [`Inlet::has_room`] is asked before more is taken in.
    ///
    /// # Errors
    /// As [`Inlet::try_send`].
    pub fn send_ahead(&mut self, rows: Incoming) -> Result<(), ApiError> {
        let end = self.behind(&rows);
        self.publisher.send_ahead(rows)?;
        self.end = self.end.max(end);
        Ok(())
    }

    /// Whether more may be taken in: there was room for what was last sent ahead. If not: [`Inlet::woken`], then again.
    ///
    /// # Errors
    /// The job has ended, or another publisher came under the same name.
    pub fn has_room(&self) -> Result<bool, ApiError> {
        Ok(self.publisher.has_room()?)
    }

    /// Hands rows over, however long that takes.
    ///
    /// # Errors
    /// As [`Inlet::try_send`].
    pub async fn send(&mut self, rows: Incoming) -> Result<(), ApiError> {
        let mut rows = rows;
        while let Some(back) = self.try_send(rows)? {
            self.woken().await;
            rows = back;
        }
        Ok(())
    }

    /// Asks for a checkpoint that covers what was sent.
    pub fn urge(&self) {
        self.publisher.urge();
    }

    /// Waits until there may be room, an acknowledgement or an end.
    pub async fn woken(&self) {
        self.signal.notified().await;
    }

    /// Waits until everything that was sent is safe.
    ///
    /// # Errors
    /// As [`Inlet::acknowledged`].
    pub async fn safe(&self) -> Result<u64, ApiError> {
        self.urge();
        loop {
            let acknowledged = self.acknowledged()?;
            if acknowledged >= self.end {
                return Ok(acknowledged);
            }
            self.woken().await;
        }
    }
}
