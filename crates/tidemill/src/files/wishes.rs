//! What a query says about the files it names, `read_csv('…', filename = true)`: DuckDB's names of options, and
//! options of our tables by theirs.

use std::collections::BTreeMap;

use tidemill_format::infer::CsvKnown;
use tidemill_format::options::one_of;
use tidemill_sql::FileRequest;

/// The names that are not options of tables.
const NAMES: &[&str] = &[
    "all_varchar",
    "compression",
    "delim",
    "delimiter",
    "encoding",
    "escape",
    "filename",
    "header",
    "hive_partitioning",
    "ignore_errors",
    "nullstr",
    "quote",
    "sep",
    "union_by_name",
];

/// How files are to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The format, whatever the names say.
    pub format: Option<String>,
    /// A column of this name has the path of each row's file.
    pub filename: Option<String>,
    /// Columns of all files are put together by name.
    pub union: bool,
    /// Directories such as `year=2024` are columns; by default if all files lie in such.
    pub hive: Option<bool>,
    /// Every column is a STRING.
    pub text_only: bool,
    /// What is known of CSV.
    pub csv: CsvKnown,
    /// Options of the table.
    pub options: BTreeMap<String, String>,
}

impl Wishes {
    /// What a call of `read_csv` and the like says.
    ///
    /// # Errors
    /// An option that is none, a value that it cannot have.
    pub fn of(request: &FileRequest) -> Result<Self, String> {
        let mut wishes = Wishes { format: request.format.clone(), ..Wishes::default() };
        for (name, value) in &request.options {
            wishes.take(name, value)?;
        }
        Ok(wishes)
    }

    /// Takes one option.
    ///
    /// # Errors
    /// As [`Wishes::of`].
    pub fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let flag = || match value.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(format!("the option {name} is true or false, not '{value}'")),
        };
        let character = || {
            let text = if value == "\\t" { "\t" } else { value };
            let mut all = text.chars();
            match (all.next(), all.next()) {
                (Some(c), None) => Ok(c),
                _ => Err(format!("the option {name} is one character, not '{value}'")),
            }
        };
        let mut set = |key: &str, value: &str| drop(self.options.insert(key.to_string(), value.to_string()));
        match name {
            "filename" => {
                self.filename = match value.to_ascii_lowercase().as_str() {
                    "true" => Some("filename".to_string()),
                    "false" => None,
                    _ => Some(value.to_string()),
                }
            }
            "union_by_name" => self.union = flag()?,
            "hive_partitioning" => self.hive = Some(flag()?),
            "all_varchar" => self.text_only = flag()?,
            "header" => self.csv.header = Some(flag()?),
            "delim" | "delimiter" | "sep" => {
                set("csv.field-delimiter", value);
                self.csv.delimiter = Some(character()?);
            }
            "quote" if value.is_empty() => set("csv.disable-quote-character", "true"),
            "quote" => {
                set("csv.quote-character", value);
                self.csv.quote = Some(character()?);
            }
            "encoding" => set("csv.encoding", value),
            "escape" => set("csv.escape-character", value),
            "nullstr" => set("csv.null-literal", value),
            "ignore_errors" => {
                if flag()? {
                    set("on-error", "skip");
                }
            }
            "compression" => match value {
                "auto" => {}
                "uncompressed" => set("compression", "none"),
                other => set("compression", other),
            },
            "format" => self.format = Some(value.to_ascii_lowercase()),
            "connector" | "path" => return Err(format!("the option {name} is said by the path already")),
            // An option of the table: 'csv.null-literal', 'on-error'.
            other if other.contains(['.', '-']) => set(other, value),
            other => return Err(format!("there is no option {other}: {}; or one of the table's, in quotes", one_of(other, NAMES))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(options: &[(&str, &str)]) -> Result<Wishes, String> {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Wishes::of(&FileRequest { options, ..FileRequest::path("x") })
    }

    #[test]
    fn options_have_two_kinds_of_names() {
        let known = wishes(&[("filename", "true"), ("delim", "\\t"), ("csv.null-literal", "NA"), ("header", "FALSE")]).unwrap();
        assert_eq!((known.filename.as_deref(), known.csv.delimiter, known.csv.header), (Some("filename"), Some('\t'), Some(false)));
        assert_eq!(known.options.keys().collect::<Vec<_>>(), ["csv.field-delimiter", "csv.null-literal"]);
        assert_eq!(wishes(&[("filename", "file")]).unwrap().filename.as_deref(), Some("file"));
        assert_eq!(wishes(&[("ignore_errors", "true")]).unwrap().options["on-error"], "skip");
        assert!(wishes(&[("filenam", "true")]).unwrap_err().contains("did you mean 'filename'?"));
        assert!(wishes(&[("union_by_name", "yes")]).unwrap_err().contains("true or false"));
        assert!(wishes(&[("path", "y")]).is_err());
    }
}
