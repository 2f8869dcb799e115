//! Reads what the thread of a session has taken.

use std::sync::Arc;

use serde_json::{Value, json};
use tidemill_connect::{ConnectError, Polled, Reader};

use crate::inbox::{Inbox, Parcel};
use crate::rows::RowMaker;

/// Reads a session.
pub struct MqttReader {
    inbox: Arc<Inbox>,
    maker: RowMaker,
    /// Messages that are being given, and how many of them are.
    open: Option<(Parcel, usize)>,
    /// The number of the last message given.
    taken: u64,
}

impl MqttReader {
    /// A reader of what comes behind message `taken`.
    pub fn new(inbox: Arc<Inbox>, maker: RowMaker, taken: u64) -> Self {
        MqttReader { inbox, maker, open: None, taken }
    }
}

/// The number in a position.
pub fn taken(position: &Value) -> Option<u64> {
    position.get("messages")?.as_u64()
}

impl Reader for MqttReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        let (parcel, at) = match self.open.take() {
            Some(open) => open,
            None => match self.inbox.pop()? {
                Some(parcel) => (parcel, 0),
                None => return Ok(Polled::Pending),
            },
        };
        let to = parcel.entries.len().min(at + rows_max.max(1));
        let rows = self.maker.make(&parcel, at, to)?;
        self.taken = parcel.first + to as u64 - 1;
        self.inbox.taken(self.taken);
        if to < parcel.entries.len() {
            self.open = Some((parcel, to));
        } else {
            self.inbox.release(parcel.bytes.len());
        }
        Ok(Polled::Rows(rows))
    }

    /// Nothing can be asked for again; it says which messages can be acknowledged.
    fn position(&self) -> Value {
        json!({"messages": self.taken})
    }
}

impl Drop for MqttReader {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
