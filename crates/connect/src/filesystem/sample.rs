//! What a Parquet file says of its columns, wherever it lies, for those who want to know before they declare a table.
//! Of text one reads the first lines, as any table of it does.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow::datatypes::SchemaRef;
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::parquet;
use tidemill_store::StoreOptions;

use super::columns::{LocalColumns, RemoteColumns};
use super::directory::Place;
use super::listing::{Kind, Listing};
use super::path::Location;
use crate::ConnectError;

/// The columns of the first file that `path` means, which is what a table's `path` may be; `options` are those of such a
/// table, of which `store.…` matter.
///
/// # Errors
/// There is no such file, or it is no Parquet file.
pub fn parquet_schema(path: &str, options: &BTreeMap<String, String>) -> Result<SchemaRef, ConnectError> {
    let options = options.iter().filter(|(key, _)| key.starts_with("store."));
    let mut raw = RawOptions::new(format!("'{path}'"), options.map(|(key, value)| (key.clone(), value.clone())));
    let store = StoreOptions::take(&mut raw)?;
    raw.finish()?;
    store.check().map_err(|e| ConnectError::new(e.to_string()))?;
    let listing = Listing::new(Location::parse(path)?, None, store);
    let Some(item) = listing.items(false)?.into_iter().find(|item| item.kind == Kind::Plain) else {
        return Err(ConnectError::new(format!("there is no Parquet file in '{path}'; those in archives cannot be read, unpack them")));
    };
    let (name, file) = (&item.path, Path::new(&item.path));
    Ok(match listing.place(name)? {
        Place::Local => {
            let columns = File::open(file).and_then(|file| LocalColumns::new(file, false));
            parquet::schema_in(file, &columns.map_err(|e| ConnectError::io(format!("opening '{name}'"), &e))?)?
        }
        Place::Remote(store, object) => parquet::schema_in(file, &RemoteColumns::new(store.ranges(&object)))?,
    })
}
