//! Reads one stream: what its thread has brought becomes rows.

use std::sync::Arc;

use serde_json::Value;
use tidemill_connect::{ConnectError, Polled, Reader};

use crate::feed::{Came, Feed, Piece};
use crate::position::Position;
use crate::rows::RowMaker;

/// Reads a stream.
pub struct StreamReader {
    feed: Arc<Feed>,
    maker: RowMaker,
    position: Position,
    /// What is being given, and how many of its entries were.
    piece: Piece,
    given: usize,
}

impl StreamReader {
    /// A reader at `position`, to which `feed` brings entries.
    pub fn new(feed: Arc<Feed>, maker: RowMaker, position: Position) -> Self {
        StreamReader { feed, maker, position, piece: Piece::default(), given: 0 }
    }
}

impl Reader for StreamReader {
    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        if self.given == self.piece.entries.len() {
            match self.feed.take() {
                Came::Nothing => return Ok(Polled::Pending),
                Came::End => return Ok(Polled::End),
                Came::Failed(error) => return Err(error),
                Came::Piece(piece) => (self.piece, self.given) = (piece, 0),
            }
        }
        let to = self.piece.entries.len().min(self.given + rows_max.max(1));
        let entries = &self.piece.entries[self.given..to];
        let rows = self.maker.make(&self.piece, entries).map_err(|e| e.at(format_args!("stream '{}'", self.position.stream)))?;
        if let Some(last) = entries.last() {
            self.position.after = last.id;
            self.position.read = self.piece.read.map(|read| read + to as u64);
        }
        self.given = to;
        Ok(Polled::Rows(rows))
    }

    fn position(&self) -> Value {
        self.position.value()
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.feed.stop();
    }
}
