//! The hints of a statement: `OPTIONS` changes a table for that statement, `LOOKUP` says how a lookup join
//! asks. Others either only say how to run a query, and are passed over, or are refused because results
//! would differ without them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Location;
use tidemill_plan::LookupHint;
use tidemill_plan::lookup::RetryMiss;

use super::catalog::{Catalog, Relation, listed, nearest};
use crate::ast::{Hint, HintKind};
use crate::diagnostic::{Span, SqlError};

/// The `OPTIONS` and `LOOKUP` hints.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    options: Vec<(Hint, BTreeMap<String, String>, AtomicBool)>,
    lookups: Vec<Lookup>,
}

/// A `LOOKUP` hint.
#[derive(Debug)]
struct Lookup {
    /// Where the SELECT begins behind which it stands.
    at: Location,
    span: Span,
    /// The table's alias, or its name if it has none.
    table: String,
    hint: LookupHint,
    used: AtomicBool,
}

impl Hints {
    /// Takes the hints of a statement.
    ///
    /// # Errors
    /// One that cannot be passed over.
    pub fn new(hints: &[Hint]) -> Result<Arc<Self>, SqlError> {
        let mut options = Vec::new();
        let mut lookups: Vec<Lookup> = Vec::new();
        for hint in hints {
            match &hint.kind {
                HintKind::Options(pairs) => options.push((hint.clone(), pairs.clone(), AtomicBool::new(false))),
                HintKind::StateTtl(_) => {
                    return Err(SqlError::at(hint.span, "the hint STATE_TTL is not supported")
                        .with_help("SET 'table.exec.state.ttl' = '1 d' holds for all regular joins of the job"));
                }
                HintKind::Lookup(pairs) => {
                    if !hint.table.is_empty() {
                        return Err(SqlError::at(hint.span, "the hint LOOKUP stands behind SELECT").with_help(LOOKUP_EXAMPLE));
                    }
                    let (table, read) = lookup_hint(pairs).map_err(|e| e.or_at(Some(hint.span)))?;
                    if lookups.iter().any(|l| l.at == hint.at && l.table == table) {
                        return Err(SqlError::at(hint.span, format!("there are two hints LOOKUP for {table}")));
                    }
                    lookups.push(Lookup { at: hint.at, span: hint.span, table, hint: read, used: AtomicBool::new(false) });
                }
                // They choose between ways to get the same rows.
                HintKind::Other(_) => {}
            }
        }
        Ok(Arc::new(Hints { options, lookups }))
    }

    /// The number of the `LOOKUP` hint for a table joined in the SELECT that begins at a position.
    pub fn lookup_for(&self, select: Location, table: &str) -> Option<usize> {
        self.lookups.iter().position(|l| l.at == select && l.table == table)
    }

    /// What a `LOOKUP` hint says, for the join it belongs to.
    pub fn lookup(&self, number: usize) -> LookupHint {
        let Some(lookup) = self.lookups.get(number) else { return LookupHint::default() };
        lookup.used.store(true, Ordering::Relaxed);
        lookup.hint.clone()
    }

    /// The options for the table whose name begins at a position; a file in quotes has none in the
    /// tree, it goes by its name.
    pub fn options_for(&self, name: &Ident) -> Option<BTreeMap<String, String>> {
        let at = name.span.start;
        let meant = |hint: &Hint| if at.line == 0 { hint.table == name.value } else { hint.at == at };
        let mut found: Option<BTreeMap<String, String>> = None;
        for (_, pairs, used) in self.options.iter().filter(|(hint, ..)| meant(hint)) {
            used.store(true, Ordering::Relaxed);
            found.get_or_insert_default().extend(pairs.clone());
        }
        found
    }

    /// Fails if an `OPTIONS` hint met no table, or a `LOOKUP` hint no lookup join.
    ///
    /// # Errors
    /// The hint.
    pub fn check_used(&self, catalog: &Catalog) -> Result<(), SqlError> {
        if let Some(lookup) = self.lookups.iter().find(|l| !l.used.load(Ordering::Relaxed)) {
            let message = format!("no lookup join of this SELECT joins {}", lookup.table);
            return Err(SqlError::at(lookup.span, message)
                .with_help("'table' names the table of a JOIN … FOR SYSTEM_TIME AS OF o.pt, by its alias if it has one"));
        }
        match self.options.iter().find(|(.., used)| !used.load(Ordering::Relaxed)) {
            None => Ok(()),
            Some((hint, ..)) => {
                let error = SqlError::at(hint.span, "this hint OPTIONS belongs to no table");
                Err(match catalog.get(&hint.table) {
                    Some(Relation::View(_)) => {
                        error.with_help(format!("{} is a view: put the hint behind the table in its query", hint.table))
                    }
                    _ => error.with_help("it stands directly behind the name of a table in FROM or INSERT INTO"),
                })
            }
        }
    }
}

const LOOKUP_EXAMPLE: &str = "write SELECT /*+ LOOKUP('table' = 'd', 'output-mode' = 'allow_unordered', 'capacity' = '100') */ …";

/// The table and what is said about it.
fn lookup_hint(pairs: &BTreeMap<String, String>) -> Result<(String, LookupHint), SqlError> {
    let mut table = None;
    let mut hint = LookupHint::default();
    let (mut misses, mut delay, mut attempts) = (false, None, None);
    for (key, value) in pairs {
        let expected = |what: &str| SqlError::new(format!("LOOKUP: '{key}' = '{value}': expected {what}")).with_help(LOOKUP_EXAMPLE);
        let text = value.trim();
        let whether = || text.to_ascii_lowercase().parse::<bool>().map_err(|_| expected("true or false"));
        let span = || duration(text).filter(|d| !d.is_zero()).ok_or_else(|| expected("a duration such as '500 ms' or '10 s'"));
        match key.trim().to_ascii_lowercase().as_str() {
            "table" => table = Some(text.to_string()),
            "async" => hint.asynchronous = Some(whether()?),
            "output-mode" => {
                hint.ordered = Some(match text.to_ascii_lowercase().as_str() {
                    "ordered" => true,
                    "allow_unordered" => false,
                    _ => return Err(expected("ordered or allow_unordered")),
                });
            }
            "capacity" => {
                let capacity = text.parse().ok().filter(|n: &usize| (1..=CAPACITY_LIMIT).contains(n));
                hint.capacity = Some(capacity.ok_or_else(|| expected(&format!("1 to {CAPACITY_LIMIT}")))?);
            }
            "timeout" => hint.timeout = Some(span()?),
            "retry-predicate" if text.eq_ignore_ascii_case("lookup_miss") => misses = true,
            "retry-predicate" => return Err(expected("lookup_miss")),
            "retry-strategy" if text.eq_ignore_ascii_case("fixed_delay") => {}
            "retry-strategy" => return Err(expected("fixed_delay")),
            "fixed-delay" => delay = Some(span()?),
            "max-attempts" => attempts = Some(text.parse().ok().filter(|n| *n > 0u32).ok_or_else(|| expected("a number from 1"))?),
            "shuffle" => hint.shuffle = Some(whether()?),
            _ => {
                let error = SqlError::new(format!("LOOKUP: there is no option '{key}'"));
                return Err(match nearest(key, LOOKUP_KEYS.iter().copied()) {
                    Some(near) => error.with_help(format!("did you mean '{near}'?")),
                    None => error.with_help(listed(LOOKUP_KEYS.iter().copied())),
                });
            }
        }
    }
    let Some(table) = table else {
        return Err(SqlError::new("LOOKUP: 'table' is missing: it names the table that is joined").with_help(LOOKUP_EXAMPLE));
    };
    hint.retry_miss = match (misses, delay, attempts) {
        (true, Some(delay), Some(attempts)) => Some(RetryMiss { delay, attempts }),
        (false, None, None) => None,
        _ => {
            let message = "LOOKUP: asking again for what was not found takes 'retry-predicate', 'fixed-delay' and 'max-attempts'";
            return Err(SqlError::new(message).with_help(
                "'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '10 s', 'max-attempts' = '3'",
            ));
        }
    };
    Ok((table, hint))
}

/// A duration as options of tables have it: `10 s`, `500ms`, a bare number for milliseconds.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit_ms: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "second" | "seconds" => 1000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit_ms).map(Duration::from_millis)
}

/// What a hint may say.
const LOOKUP_KEYS: &[&str] = &[
    "table",
    "async",
    "output-mode",
    "capacity",
    "timeout",
    "retry-predicate",
    "retry-strategy",
    "fixed-delay",
    "max-attempts",
    "shuffle",
];

/// The most lookups that a shard may have under way, as the option 'lookup.capacity' has it.
const CAPACITY_LIMIT: usize = 100_000;
