//! Scalar functions under Flink's names and with Flink's meaning.
//!
//! A theme is a file with a table of its functions. DataFusion's own functions join in where name
//! and meaning agree. Aggregates, window functions and the rewriting of special syntax (`EXTRACT(x
//! FROM y)`, `FLOOR(t TO unit)`, `CAST`) are the planner's.

mod calendar;
mod cast;
mod conditional;
mod date_format;
mod define;
mod digest;
mod encoding;
mod json;
mod json_scan;
mod math;
mod moment;
mod random;
mod regex;
mod regex_shape;
mod string;
#[cfg(test)]
mod testing;
mod time;
mod zone;

use std::collections::HashSet;
use std::sync::Arc;

use datafusion_common::{Result, plan_err};
use datafusion_expr::ScalarUDF;

use define::{Def, Function, Session};
use zone::Zone;

/// What functions need to know of the session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSettings {
    /// Where TIMESTAMP_LTZ is rendered and CURRENT_DATE begins: a name of the IANA database
    /// (`Europe/Berlin`) or an offset (`+02:00`).
    pub time_zone: String,
}

impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings { time_zone: "UTC".to_string() }
    }
}

impl SessionSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// A time zone that does not exist.
    pub fn check(&self) -> Result<()> {
        match Zone::parse(&self.time_zone) {
            Ok(_) => Ok(()),
            Err(message) => plan_err!("option 'table.local-time-zone': {message}"),
        }
    }
}

const THEMES: &[&[Def]] = &[
    time::FUNCTIONS,
    calendar::FUNCTIONS,
    string::FUNCTIONS,
    regex::FUNCTIONS,
    encoding::FUNCTIONS,
    json::FUNCTIONS,
    conditional::FUNCTIONS,
    math::FUNCTIONS,
    random::FUNCTIONS,
    cast::FUNCTIONS,
];

/// All scalar functions by lower-case name: DataFusion's, then ours, which override theirs by name.
///
/// Aliases count as names. An alias of one of theirs may be a name of ours (`instr`), so that
/// whoever fills a table of names goes through the list in order. A function that needs the time zone
/// fails when it is called, if there is no such zone; see [`SessionSettings::check`].
pub fn scalar_functions(session: &SessionSettings) -> Vec<Arc<ScalarUDF>> {
    let session = Arc::new(Session { time_zone: session.time_zone.clone(), zone: Zone::parse(&session.time_zone) });
    let ours = THEMES.iter().copied().flatten();
    let names: HashSet<&str> = ours.clone().flat_map(|d| d.aliases.iter().copied().chain([d.name])).collect();
    let mut all = datafusion_functions::all_default_functions();
    all.retain(|f| !names.contains(f.name()));
    all.extend(ours.map(|d| Arc::new(ScalarUDF::new_from_impl(Function::new(*d, session.clone())))));
    all
}

/// The functions that are defined here, for the reference page: how each is written, and what it
/// gives in one line.
pub fn reference() -> Vec<(&'static str, &'static str)> {
    THEMES.iter().copied().flatten().map(|d| (d.usage, d.help)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_taken_twice() {
        let mut seen = HashSet::new();
        for def in THEMES.iter().copied().flatten() {
            for name in def.aliases.iter().copied().chain([def.name]) {
                assert!(seen.insert(name), "{name}");
                assert_eq!(name, name.to_ascii_lowercase());
            }
            assert!(!def.help.ends_with('.') && !def.help.is_empty(), "{}", def.name);
        }
    }

    #[test]
    fn ours_override_theirs() {
        let all = scalar_functions(&SessionSettings::default());
        for name in ["greatest", "nvl", "coalesce", "nullif"] {
            assert_eq!(all.iter().filter(|f| f.name() == name || f.aliases().iter().any(|a| a == name)).count(), 1, "{name}");
        }
        let greatest = all.iter().find(|f| f.name() == "greatest").expect("GREATEST");
        assert!(greatest.inner().is::<Function>());
    }

    #[test]
    fn a_zone_that_does_not_exist_is_reported() {
        let settings = SessionSettings { time_zone: "Mars/Olympus".to_string() };
        assert!(settings.check().unwrap_err().to_string().contains("there is no time zone 'Mars/Olympus'"));
        assert!(SessionSettings::default().check().is_ok());
    }
}
