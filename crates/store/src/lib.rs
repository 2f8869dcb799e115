//! Object stores and web servers for code that knows no async: `gs://`, `s3://`, `az://`, `http(s)://`.
//!
//! [`Store`] is the entry, in [`store`]. [`reader`] reads forwards, several requests ahead, and continues bodies that
//! break; [`ranges`] reads anywhere; [`writer`] uploads in parts of which nothing is visible until they are completed;
//! [`commit`] makes several objects visible together; [`lock`] keeps two writers out of one directory. Below them: [`client`]
//! (credentials, endpoints), [`web`] (plain web servers), [`open`] (bodies), [`list`] (globs), [`pace`] (how many requests),
//! [`ahead`] (how many bytes ahead), [`moment`] (time that goes on in sleep), [`runtime`] (the threads), [`explain`] (errors).
//! What does not live here: formats, compression, what a sink commits.
//!
//! All of that is the feature `cloud`. Without it `absent` offers the same functions, and every store is refused.

#[cfg(not(feature = "cloud"))]
mod absent;
#[cfg(feature = "cloud")]
mod ahead;
#[cfg(feature = "cloud")]
mod client;
#[cfg(feature = "cloud")]
mod commit;
#[cfg(any(all(test, feature = "cloud"), feature = "emulator"))]
pub mod emulator;
mod error;
#[cfg(feature = "cloud")]
mod explain;
#[cfg(feature = "cloud")]
mod list;
#[cfg(feature = "cloud")]
mod lock;
#[cfg(feature = "cloud")]
mod moment;
#[cfg(feature = "cloud")]
mod open;
mod options;
#[cfg(feature = "cloud")]
mod pace;
#[cfg(feature = "cloud")]
mod profile;
#[cfg(feature = "cloud")]
mod ranges;
#[cfg(feature = "cloud")]
mod reader;
#[cfg(feature = "cloud")]
mod runtime;
#[cfg(feature = "cloud")]
mod store;
#[cfg(feature = "cloud")]
mod web;
#[cfg(feature = "cloud")]
mod writer;

#[cfg(all(test, feature = "cloud"))]
mod tests;

use serde::{Deserialize, Serialize};

#[cfg(not(feature = "cloud"))]
pub use absent::{Lock, ObjectFile, ObjectWriter, Reserved, Store, network_bytes, network_waited};
pub use error::{Kind, StoreError};
pub use options::StoreOptions;

#[cfg(feature = "cloud")]
pub use {lock::Lock, open::network_bytes, open::network_waited, ranges::ObjectFile, ranges::Reserved, store::Store, writer::ObjectWriter};

/// The size of an object of which the server does not say it.
pub const SIZE_UNKNOWN: u64 = u64::MAX;

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Google,
    S3,
    Azure,
    Http,
}

impl Scheme {
    fn named(name: &str) -> Option<Self> {
        match name {
            "gs" => Some(Scheme::Google),
            "s3" | "s3a" => Some(Scheme::S3),
            "az" | "azure" | "abfs" | "abfss" => Some(Scheme::Azure),
            "http" | "https" => Some(Scheme::Http),
            _ => None,
        }
    }
}

/// Whether a path means something in a store or on a web server: `gs:`, `s3:`, `s3a:`, `az:`, `azure:`, `abfs:`, `abfss:`,
/// `http:`, `https:`, each followed by two slashes.
pub fn is_remote(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| Scheme::named(&scheme.to_ascii_lowercase()).is_some())
}

/// An object, as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its whole URL.
    pub url: String,
    /// Its name in the bucket; on a web server the path with the query.
    pub key: String,
    /// Bytes; [`SIZE_UNKNOWN`] where a web server does not say.
    pub size: u64,
    /// Names its version. On a web server without such a thing: when it was changed.
    pub etag: Option<String>,
    /// When it was changed, ms since 1970; 0 where a web server does not say.
    pub modified_ms: i64,
    /// Whether it can be read anywhere. Some web servers give files from the beginning only.
    pub seekable: bool,
}

/// An upload whose parts are there and of which nothing is visible. It can be kept, as JSON, and completed by another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The key that the object will have.
    pub key: String,
    /// Bytes.
    pub size: u64,
    upload: String,
    parts: Vec<String>,
    /// The ETag of what the upload replaces.
    before: Option<String>,
    mark: String,
}

impl Pending {
    /// Whether both are the same upload.
    pub fn is(&self, other: &Pending) -> bool {
        (&self.key, &self.upload) == (&other.key, &other.upload)
    }
}

/// An upload that was begun and neither completed nor aborted.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// Whose it is, if somebody may come back for it.
    pub owner: Option<String>,
    /// For [`Store::abort`]; it knows no parts.
    pub pending: Pending,
}
