//! Connectors: where events come from and go to.
//!
//! A connector is a folder here: it implements [`Source`] or [`Sink`] or both, declares its options
//! with [`tidemill_format::options!`], and is entered in the [`registry`]. The traits are small:
//! readers are polled and never wait, writers may wait (that is back-pressure). What does not live
//! here: plans, operators, checkpoints; connectors only say where a split stands and what is to be
//! committed.

pub mod certificates;
pub mod drive;
mod error;
pub mod io;
pub mod listeners;
pub mod lookup;
mod notices;
pub mod registry;
mod selection;
mod sink;
mod sockets;
mod source;
mod stable_hash;

pub mod blackhole;
pub mod datagen;
pub mod filesystem;
pub mod nexmark;
pub mod print;
pub mod siddhi_tcp;
pub mod soccer;
pub mod socket;
pub mod stdio;

pub use error::ConnectError;
pub use lookup::{Answer, Failure, Found, Lookup, LookupContext, LookupOptions, LookupTable};
pub use notices::{notice, notices};
pub use selection::{FileSelection, Selection};
pub use sink::{Arrived, Committable, Sink, SinkContext, Visible, Writer, WriterStats};
pub use sockets::{Bell, Sockets, Watched};
pub use source::{Changelog, Fetching, Polled, ReadRequest, Reader, ReaderContext, Rows, Source, Split, Waker};
pub use stable_hash::stable_hash;
