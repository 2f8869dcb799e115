//! The hints of a statement: `OPTIONS` changes a table for that statement. Others either only say how
//! to run a query, and are passed over, or are refused because results would differ without them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlparser::ast::Ident;

use super::catalog::{Catalog, Relation};
use crate::ast::{Hint, HintKind};
use crate::diagnostic::SqlError;

/// The `OPTIONS` hints.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    options: Vec<(Hint, BTreeMap<String, String>, AtomicBool)>,
}

impl Hints {
    /// Takes the hints of a statement.
    ///
    /// # Errors
    /// One that cannot be passed over.
    pub fn new(hints: &[Hint]) -> Result<Arc<Self>, SqlError> {
        let mut options = Vec::new();
        for hint in hints {
            match &hint.kind {
                HintKind::Options(pairs) => options.push((hint.clone(), pairs.clone(), AtomicBool::new(false))),
                HintKind::StateTtl(_) => {
                    return Err(SqlError::at(hint.span, "the hint STATE_TTL is not supported")
                        .with_help("SET 'table.exec.state.ttl' = '1 d' holds for all regular joins of the job"));
                }
                // They choose between ways to get the same rows.
                HintKind::Other(_) => {}
            }
        }
        Ok(Arc::new(Hints { options }))
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

    /// Fails if an `OPTIONS` hint met no table.
    ///
    /// # Errors
    /// The hint.
    pub fn check_used(&self, catalog: &Catalog) -> Result<(), SqlError> {
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
