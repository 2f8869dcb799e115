//! How many read at once, found by measuring, and what keeps them from reading faster.
//!
//! [`search`] decides, a pure struct that is fed with samples; [`meter`] takes the samples of this process; [`readers`] is
//! what the shards of one table share, and [`opening`] opens their splits without waiting. `tidemill copy` uses the search
//! and the meter for a pool of its own. What does not live here: how far ahead of one reader a store is asked
//! (`tidemill_store`), and calls of lookup joins (`tidemill_operator::lookup`), which are searches of other things.

pub mod meter;
pub(crate) mod opening;
pub(crate) mod readers;
pub mod search;

use std::fmt;

use serde::Serialize;
use tidemill_format::options::OptionValue;

pub use meter::Meter;
pub use search::{Advice, Bounds, Sample, Search};

/// What holds reading back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Decoding and all behind it use up the processors.
    Processors,
    /// More would not fit into the memory that there is for it.
    Memory,
    /// Readers wait for disks.
    Disk,
    /// Readers wait for stores and web servers.
    Network,
    /// Rows cannot be written as fast as they are read.
    Sink,
}

impl Limit {
    pub(crate) const ALL: [Limit; 5] = [Limit::Processors, Limit::Memory, Limit::Disk, Limit::Network, Limit::Sink];
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Processors => "the processors",
            Limit::Memory => "memory",
            Limit::Disk => "the disk",
            Limit::Network => "the network",
            Limit::Sink => "the sink",
        })
    }
}

/// How something was read, as the summary says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// How many read at once.
    pub workers: usize,
    /// Whether that number was found; otherwise it was given, or follows from the number of shards.
    pub found: bool,
    /// What held them back for most of the time, if anything did.
    pub limited_by: Option<Limit>,
}

impl fmt::Display for Found {
    /// `read by 6 workers (found), limited by the network`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.workers == 1 { "" } else { "s" };
        write!(f, "read by {} worker{s}", self.workers)?;
        if self.found {
            f.write_str(" (found)")?;
        }
        match self.limited_by {
            Some(limit) => write!(f, ", limited by {limit}"),
            None => Ok(()),
        }
    }
}

/// How many read at once: the setting `read.parallel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// As many as pay.
    Auto,
    /// So many: 1 to [`READERS_MAX`], if it is an option that says it.
    Fixed(usize),
}

/// The most that may be asked for: each may hold some 10 MB of what it has read ahead.
pub const READERS_MAX: usize = 1024;

impl OptionValue for AtOnce {
    const KIND: &'static str = "`auto` or integer";
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            t if t.eq_ignore_ascii_case("auto") => Ok(AtOnce::Auto),
            t => match t.parse() {
                Ok(n) if (1..=READERS_MAX).contains(&n) => Ok(AtOnce::Fixed(n)),
                _ => Err(format!("expected 'auto' or a whole number from 1 to {READERS_MAX}")),
            },
        }
    }
    fn show(&self) -> Option<String> {
        Some(match self {
            AtOnce::Auto => "auto".into(),
            AtOnce::Fixed(n) => n.to_string(),
        })
    }
}

#[cfg(test)]
mod tests;
