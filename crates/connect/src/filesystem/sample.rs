//! What a file says of its columns, wherever it lies, for those who want to know before they declare a table: here how the
//! first file of a path is found, and Parquet's columns; those of other formats are found where they are read. Of text one
//! reads the first lines, as any table of it does.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow::datatypes::SchemaRef;
use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_format::parquet;
use tidemill_store::StoreOptions;

use super::cache::Care;
use super::columns::{LocalColumns, RemoteColumns};
use super::directory::Place;
use super::listing::{Kind, Listing};
use super::path::Location;
use crate::ConnectError;

/// Those of a table's options that matter before it is declared: `store.…`, and the `others`.
pub(super) fn options_of(path: &str, options: &BTreeMap<String, String>, others: impl Fn(&str) -> bool) -> RawOptions {
    let matter = options.iter().filter(|(key, _)| key.starts_with("store.") || others(key));
    RawOptions::new(format!("'{path}'"), matter.map(|(key, value)| (key.clone(), value.clone())))
}

/// The first file that `path` means, which is what a table's `path` may be, and where it lies. `raw` are the options that
/// [`options_of`] gave, those of the format taken; `format` is its name in messages.
///
/// # Errors
/// There is no such file; an option is wrong.
pub(super) fn first_file(path: &str, mut raw: RawOptions, format: &str) -> Result<(String, Place), ConnectError> {
    let store = StoreOptions::take(&mut raw)?;
    raw.finish()?;
    store.check().map_err(|e| ConnectError::new(e.to_string()))?;
    let listing = Listing::new(Location::parse(path, None)?, None, store);
    let Some(item) = listing.items(false)?.into_iter().find(|item| item.kind == Kind::Plain) else {
        return Err(ConnectError::new(format!("there is no {format} file in '{path}'; those in archives cannot be read, unpack them")));
    };
    let place = listing.place(&item.path)?;
    Ok((item.path, place))
}

/// The columns of the first Parquet file that `path` means; `options` are those of its table, of which `store.…` matter.
///
/// # Errors
/// There is no such file, or it is no Parquet file.
pub fn parquet_schema(path: &str, options: &BTreeMap<String, String>) -> Result<SchemaRef, ConnectError> {
    let (name, place) = first_file(path, options_of(path, options, |_| false), "Parquet")?;
    let file = Path::new(&name);
    Ok(match place {
        Place::Local => {
            let columns = File::open(file).and_then(|file| LocalColumns::new(file, Care::default()));
            parquet::schema_in(file, &columns.map_err(|e| ConnectError::io(format!("opening '{name}'"), &e))?)?
        }
        Place::Remote(store, object) => parquet::schema_in(file, &RemoteColumns::new(store.ranges(&object)))?,
    })
}
