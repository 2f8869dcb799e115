//! Options of tables, formats and jobs: one struct a component, one documented field an option.
//!
//! [`crate::options!`] declares the struct; help texts, the reference page and the messages about unknown
//! or ill-formed options all come from that declaration. Two stages: the text as written
//! ([`RawOptions`]), then the validated struct.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::FormatError;

/// One option of a component, for help and the reference page.
#[derive(Clone, Debug)]
pub struct OptionSpec {
    /// The name as users write it.
    pub name: &'static str,
    /// What kind of value it takes, for people: `integer`, `duration`, …
    pub kind: &'static str,
    /// The default as text; `None` if there is none.
    pub default: Option<String>,
    /// Help, one or more sentences.
    pub help: &'static str,
    /// Whether Flink knows the option under this name.
    pub flink: bool,
}

/// A struct declared by [`crate::options!`].
pub trait OptionSet: Sized {
    /// The options, in order of declaration.
    fn specs() -> Vec<OptionSpec>;
    /// Takes this component's options out of `raw`.
    ///
    /// # Errors
    /// A value that is not of its option's kind, a required option that is missing.
    fn take(raw: &mut RawOptions) -> Result<Self, FormatError>;
}

/// The `WITH` clause of a table as it was written, minus what components have taken.
#[derive(Clone, Debug, Default)]
pub struct RawOptions {
    owner: String,
    left: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl RawOptions {
    /// The options of `owner` (for messages, such as "table 'trades'").
    pub fn new(owner: impl Into<String>, options: impl IntoIterator<Item = (String, String)>) -> Self {
        RawOptions { owner: owner.into(), left: options.into_iter().collect(), known: Vec::new() }
    }

    /// Whose options these are, for messages.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The value of an option that is still there, without taking it.
    pub fn peek(&self, name: &str) -> Option<&str> {
        self.left.get(name).map(String::as_str)
    }

    /// Gives an option a value, unless it has one.
    pub fn or_insert(&mut self, name: &str, value: impl Into<String>) {
        if !self.left.contains_key(name) {
            self.left.insert(name.to_string(), value.into());
        }
    }

    /// Takes one option; remembers the name as known.
    pub fn take<T: OptionValue>(&mut self, name: &'static str) -> Result<Option<T>, FormatError> {
        self.known.push(name);
        match self.left.remove(name) {
            None => Ok(None),
            Some(text) => {
                T::parse(&text).map(Some).map_err(|why| FormatError::option(format!("{}: option '{name}' = '{text}': {why}", self.owner)))
            }
        }
    }

    /// Takes all options whose name begins with `prefix`; the keys come without it.
    pub fn take_prefixed(&mut self, prefix: &str) -> BTreeMap<String, String> {
        let names: Vec<String> = self.left.keys().filter(|k| k.starts_with(prefix)).cloned().collect();
        names.into_iter().map(|n| (n[prefix.len()..].to_string(), self.left.remove(&n).expect("listed"))).collect()
    }

    /// Checks that every option was taken.
    ///
    /// # Errors
    /// Names the first unknown option and the nearest known one.
    pub fn finish(self) -> Result<(), FormatError> {
        let Some(unknown) = self.left.keys().next() else { return Ok(()) };
        let mut known = self.known.clone();
        known.sort_unstable();
        known.dedup();
        let hint = match nearest(unknown, &known) {
            Some(name) => format!("did you mean '{name}'?"),
            None => format!("known here: {}", known.join(", ")),
        };
        Err(FormatError::option(format!("{}: unknown option '{unknown}'; {hint}", self.owner)))
    }
}

/// The name that was likely meant, if one of `known` is near enough.
pub fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = given.trim().to_lowercase();
    let score = |name: &&'a str| {
        let name = name.to_lowercase();
        // The first finds names that begin alike, the second a slip of the fingers in a short word.
        let (alike, slip) = (strsim::jaro_winkler(&name, &given), strsim::osa_distance(&name, &given));
        if slip <= 1 && given.len() > 1 { alike.max(0.9) } else { alike }
    };
    let best = known.iter().map(|name| (score(name), *name)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.75).map(|(_, name)| name)
}

/// What to say about a value that is none of `known`.
pub fn one_of(given: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(given, known) {
        Some(name) => format!("expected one of: {all}; did you mean '{name}'?"),
        None => format!("expected one of: {all}"),
    }
}

/// A type that an option's value can have.
pub trait OptionValue: Sized {
    /// The kind for people.
    const KIND: &'static str;
    /// Reads the text; the error says what was expected.
    fn parse(text: &str) -> Result<Self, String>;
    /// The text form of a default.
    fn show(&self) -> Option<String>;
}

macro_rules! number_option {
    ($($type:ty),*) => {$(
        impl OptionValue for $type {
            const KIND: &'static str = "integer";
            fn parse(text: &str) -> Result<Self, String> {
                text.trim().replace('_', "").parse().map_err(|_| format!("expected a whole number from {} to {}", <$type>::MIN, <$type>::MAX))
            }
            fn show(&self) -> Option<String> { Some(self.to_string()) }
        }
    )*};
}
number_option!(u16, u32, u64, usize, i64);

impl OptionValue for f64 {
    const KIND: &'static str = "number";
    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "expected a number".to_string())
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl OptionValue for bool {
    const KIND: &'static str = "boolean";
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("expected true or false".into()),
        }
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl OptionValue for String {
    const KIND: &'static str = "text";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_string())
    }
    fn show(&self) -> Option<String> {
        Some(self.clone())
    }
}

/// A text that is in no message, log, plan or metric.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text, for who sends it to the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl OptionValue for Secret {
    const KIND: &'static str = "text";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Secret::new(text))
    }

    /// A secret has no default, and would not be shown.
    fn show(&self) -> Option<String> {
        None
    }
}

impl OptionValue for char {
    const KIND: &'static str = "character";
    fn parse(text: &str) -> Result<Self, String> {
        let text = match text {
            "\\t" => "\t",
            "\\n" => "\n",
            other => other,
        };
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(c),
            _ => Err("expected one character".into()),
        }
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl OptionValue for Duration {
    const KIND: &'static str = "duration";
    /// `10 s`, `500ms`, `1 min`, `2 h`, `1 d`; a bare number is milliseconds, as in Flink.
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let wrong = || "expected a duration such as '500 ms', '10 s', '5 min', '1 h'".to_string();
        let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
        let nanos = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "ns" | "nano" | "nanos" => 1,
            "us" | "µs" | "micro" | "micros" => 1_000,
            "" | "ms" | "milli" | "millis" => 1_000_000,
            "s" | "sec" | "second" | "seconds" => 1_000_000_000,
            "m" | "min" | "minute" | "minutes" => 60_000_000_000,
            "h" | "hour" | "hours" => 3_600_000_000_000,
            "d" | "day" | "days" => 86_400_000_000_000,
            _ => return Err(wrong()),
        };
        number.checked_mul(nanos).map(Duration::from_nanos).ok_or_else(|| "too long a duration".to_string())
    }
    fn show(&self) -> Option<String> {
        Some(if self.as_millis().is_multiple_of(1000) { format!("{} s", self.as_secs()) } else { format!("{} ms", self.as_millis()) })
    }
}

/// A number of bytes: `64 kb`, `2GB`, `1048576`. Units are powers of 1,024, as in Flink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl OptionValue for ByteSize {
    const KIND: &'static str = "size";
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let wrong = || "expected a size such as '512 mb', '2 gb' or a number of bytes".to_string();
        let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
        let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" | "bytes" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        number.checked_mul(1 << shift).map(ByteSize).ok_or_else(|| "too large a size".to_string())
    }
    fn show(&self) -> Option<String> {
        Some(match self.0 {
            n if n >= 1 << 30 && n.is_multiple_of(1 << 30) => format!("{} gb", n >> 30),
            n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} mb", n >> 20),
            n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} kb", n >> 10),
            n => format!("{n} bytes"),
        })
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    const KIND: &'static str = T::KIND;
    fn parse(text: &str) -> Result<Self, String> {
        T::parse(text).map(Some)
    }
    fn show(&self) -> Option<String> {
        self.as_ref().and_then(T::show)
    }
}

/// Declares an enum whose variants are the values of an option.
#[macro_export]
macro_rules! option_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant),* }
        impl $crate::options::OptionValue for $name {
            const KIND: &'static str = concat!($("`", $text, "` "),*);
            fn parse(text: &str) -> Result<Self, String> {
                let text = text.trim();
                $(if text.eq_ignore_ascii_case($text) { return Ok($name::$variant); })*
                Err($crate::options::one_of(text, &[$($text),*]))
            }
            fn show(&self) -> Option<String> {
                Some(match self { $($name::$variant => $text.to_string()),* })
            }
        }
    };
}

/// Declares a struct of options. Each field: its doc comment (the help), `flink` or `ours`, the
/// option's name, the field, its type and its default. A field without a default must be an
/// `Option` (optional, none by default) or is required.
///
/// ```
/// tidemill_format::options! {
///     /// Options of the example.
///     pub struct Example {
///         /// How many rows.
///         flink "number-of-rows" => number_of_rows: Option<u64>;
///         /// Rows a second.
///         flink "rows-per-second" => rows_per_second: u64 = 10_000u64;
///     }
/// }
/// use tidemill_format::options::{OptionSet, RawOptions};
/// let mut raw = RawOptions::new("table 't'", [("rows-per-second".to_string(), "5".to_string())]);
/// let example = Example::take(&mut raw).unwrap();
/// assert_eq!((example.number_of_rows, example.rows_per_second), (None, 5));
/// ```
#[macro_export]
macro_rules! options {
    ($(#[$meta:meta])* pub struct $name:ident { $(
        $(#[doc = $help:literal])* $origin:ident $option:literal => $field:ident : $type:ty $(= $default:expr)? ;
    )* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name { $($(#[doc = $help])* pub $field: $type),* }
        impl $crate::options::OptionSet for $name {
            fn specs() -> Vec<$crate::options::OptionSpec> {
                use $crate::options::TrimStr as _;
                vec![$($crate::options::OptionSpec {
                    name: $option,
                    kind: <$type as $crate::options::OptionValue>::KIND.trim_ascii_end_str(),
                    default: $crate::options!(@show $type $(, $default)?),
                    help: concat!($($help),*).trim_ascii_start_str(),
                    flink: stringify!($origin).as_bytes()[0] == b'f',
                }),*]
            }
            fn take(raw: &mut $crate::options::RawOptions) -> Result<Self, $crate::FormatError> {
                $(let $field: Option<$type> = raw.take::<$type>($option)?;)*
                Ok($name { $($field: $crate::options!(@value raw, $option, $field, $type $(, $default)?)),* })
            }
        }
    };
    (@show $type:ty, $default:expr) => { <$type as $crate::options::OptionValue>::show(&($default).into()) };
    (@show $type:ty) => { None };
    (@value $raw:ident, $option:literal, $field:ident, $type:ty, $default:expr) => { match $field { Some(v) => v, None => ($default).into() } };
    (@value $raw:ident, $option:literal, $field:ident, $type:ty) => { <$type as $crate::options::Absent>::or_absent($field).ok_or_else(|| $crate::FormatError::option(format!("{}: option '{}' is required", $raw.owner(), $option)))? };
}

/// What a field without a default becomes when its option is absent.
pub trait Absent: Sized {
    /// The value given, or the type's own "none", or nothing.
    fn or_absent(given: Option<Self>) -> Option<Self>;
}

impl<T> Absent for Option<T> {
    fn or_absent(given: Option<Self>) -> Option<Self> {
        Some(given.flatten())
    }
}

macro_rules! required {
    ($($type:ty),*) => {$(impl Absent for $type {
        fn or_absent(given: Option<Self>) -> Option<Self> { given }
    })*};
}
required!(String, u16, u32, u64, usize, i64, f64, bool, char, Duration, ByteSize, Secret);

/// `str::trim` in the positions where the macro needs it; not for use elsewhere.
#[doc(hidden)]
pub trait TrimStr {
    fn trim_ascii_end_str(&self) -> &'static str;
    fn trim_ascii_start_str(&self) -> &'static str;
}
impl TrimStr for &'static str {
    fn trim_ascii_end_str(&self) -> &'static str {
        self.trim_end()
    }
    fn trim_ascii_start_str(&self) -> &'static str {
        self.trim_start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    options! {
        /// Options for the tests below.
        pub struct Sample {
            /// A size.
            flink "size" => size: ByteSize = ByteSize(1 << 20);
            /// A required path.
            flink "path" => path: String;
            /// A pause.
            ours "pause" => pause: Option<Duration>;
        }
    }

    fn raw(pairs: &[(&str, &str)]) -> RawOptions {
        RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))
    }

    #[test]
    fn values_defaults_and_absence() {
        let mut options = raw(&[("path", "/x"), ("pause", "5 min")]);
        let sample = Sample::take(&mut options).unwrap();
        assert_eq!((sample.size.0, sample.path.as_str(), sample.pause), (1 << 20, "/x", Some(Duration::from_secs(300))));
        options.finish().unwrap();
        assert_eq!(Sample::specs()[0].default.as_deref(), Some("1 mb"));
        assert!(!Sample::specs()[2].flink);
    }

    #[test]
    fn mistakes_name_the_table_and_the_option() {
        let error = Sample::take(&mut raw(&[])).unwrap_err().to_string();
        assert_eq!(error, "table 't': option 'path' is required");
        let error = Sample::take(&mut raw(&[("path", "x"), ("size", "many")])).unwrap_err().to_string();
        assert!(error.starts_with("table 't': option 'size' = 'many': expected a size"), "{error}");
        let mut options = raw(&[("path", "x"), ("sizes", "1")]);
        Sample::take(&mut options).unwrap();
        assert_eq!(options.finish().unwrap_err().to_string(), "table 't': unknown option 'sizes'; did you mean 'size'?");
    }

    option_enum! {
        /// Values for the test below.
        pub enum Colour { Red = "red", Green = "green", DarkBlue = "dark-blue" }
    }

    #[test]
    fn what_was_likely_meant() {
        let all = "expected one of: red, green, dark-blue";
        for (given, near) in [("rde", Some("red")), ("Grene", Some("green")), ("darkblue", Some("dark-blue")), ("purple", None), ("", None)]
        {
            let expect = near.map_or(all.to_string(), |near| format!("{all}; did you mean '{near}'?"));
            assert_eq!(Colour::parse(given).unwrap_err(), expect, "{given}");
        }
        assert_eq!(nearest("cvs", &["csv", "json", "parquet"]), Some("csv"));
        assert_eq!(nearest("filesytem", &["blackhole", "filesystem", "print"]), Some("filesystem"));
        assert_eq!(nearest("kafka", &["blackhole", "datagen", "filesystem", "print", "socket", "stdin", "stdout"]), None);
    }
}
