//! What things cost: a price file. Its form is shown by `prices.toml`, which is used where no other is named.

use tidemill_format::options::one_of;

use super::toml::{self, Entry, Table, Value};

/// The prices used without `--prices`, and the model of a file of one's own.
pub const EXAMPLE: &str = include_str!("prices.toml");

/// Where a price is from. All of it is for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// What is bought.
    pub about: String,
    /// When it cost that.
    pub date: String,
    /// Who says so.
    pub source: String,
}

/// A place for files.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    pub name: String,
    pub origin: Origin,
    /// A GB (2^30 bytes) kept for a month.
    pub gb_month: f64,
    /// The least that is paid for, GB.
    pub least_gb: f64,
    /// 10,000 operations that write or list.
    pub class_a: f64,
    /// 10,000 operations that read.
    pub class_b: f64,
    /// A GB that leaves it.
    pub egress_gb: f64,
}

/// What computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub origin: Origin,
    /// An hour of it.
    pub hour: f64,
}

/// A price file.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    pub currency: String,
    /// In the order of the file; one at least.
    pub storages: Vec<Storage>,
    pub machine: Option<Machine>,
}

impl Prices {
    /// Reads a price file.
    ///
    /// # Errors
    /// What is wrong in which line.
    pub fn parse(text: &str) -> Result<Prices, String> {
        let mut prices = Prices { currency: String::new(), storages: Vec::new(), machine: None };
        for table in toml::parse(text)? {
            let parts: Vec<&str> = table.name.iter().map(String::as_str).collect();
            match parts[..] {
                [] => {
                    let mut fields = Fields::of(table);
                    prices.currency =
                        fields.text("currency")?.ok_or("there is no currency; write currency = \"USD\" above the first table")?;
                    fields.finish()?;
                }
                ["storage", name] => {
                    let name = name.to_string();
                    let mut fields = Fields::of(table);
                    let storage = Storage {
                        name,
                        origin: fields.origin()?,
                        gb_month: fields.price("gb-month")?,
                        least_gb: fields.number("least-gb")?.unwrap_or(0.0),
                        class_a: fields.price("class-a-10000")?,
                        class_b: fields.price("class-b-10000")?,
                        egress_gb: fields.price("egress-gb")?,
                    };
                    fields.finish()?;
                    prices.storages.push(storage);
                }
                ["machine"] => {
                    let mut fields = Fields::of(table);
                    prices.machine = Some(Machine { origin: fields.origin()?, hour: fields.price("hour")? });
                    fields.finish()?;
                }
                _ => {
                    return Err(format!(
                        "line {}: there is no table [{}]; known are [storage.NAME] and [machine]",
                        table.line,
                        parts.join(".")
                    ));
                }
            }
        }
        if prices.storages.is_empty() {
            return Err("there is no storage; write a table [storage.NAME]".to_string());
        }
        Ok(prices)
    }
}

/// The entries of a table, minus those taken.
struct Fields {
    table: Table,
    known: Vec<&'static str>,
}

impl Fields {
    fn of(table: Table) -> Self {
        Fields { table, known: Vec::new() }
    }

    fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.known.push(key);
        self.table.entries.remove(key)
    }

    fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(Entry { line, .. }) => Err(format!("line {line}: '{key}' is a text: put it in quotes")),
        }
    }

    fn number(&mut self, key: &'static str) -> Result<Option<f64>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Entry { value: Value::Number(number), .. }) if number >= 0.0 => Ok(Some(number)),
            Some(Entry { line, .. }) => Err(format!("line {line}: '{key}' is a number, 0 or more, without quotes")),
        }
    }

    /// A number that must be there: what is forgotten would be free.
    fn price(&mut self, key: &'static str) -> Result<f64, String> {
        let (name, line) = (self.table.name.join("."), self.table.line);
        self.number(key)?.ok_or_else(|| format!("line {line}: [{name}] has no '{key}'; write {key} = 0 if it costs nothing"))
    }

    fn origin(&mut self) -> Result<Origin, String> {
        Ok(Origin {
            about: self.text("about")?.unwrap_or_default(),
            date: self.text("date")?.unwrap_or_default(),
            source: self.text("source")?.unwrap_or_default(),
        })
    }

    /// Whatever is left was misspelt.
    fn finish(self) -> Result<(), String> {
        match self.table.entries.iter().next() {
            None => Ok(()),
            Some((key, entry)) => Err(format!("line {}: '{key}' is not known here: {}", entry.line, one_of(key, &self.known))),
        }
    }
}
