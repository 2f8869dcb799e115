//! The pattern variables of a clause and its subsets.

use datafusion_common::Result;
use sqlparser::ast::Ident;
use tidemill_plan::pattern::SYMBOLS_MAX;

use crate::diagnostic::{LineIndex, SqlError};
use crate::parse::match_recognize::MatchClause;
use crate::query::error::column_help;
use crate::query::window::external;

/// The names before a period in the expressions of a clause.
#[derive(Debug)]
pub(super) struct Names {
    /// The variables, in the order in which the pattern names them.
    pub symbols: Vec<String>,
    /// The subsets; indices of symbols, ascending.
    subsets: Vec<(String, Vec<usize>)>,
}

impl Names {
    /// The names of a clause.
    ///
    /// # Errors
    /// A variable that is defined or put into a subset and not in the pattern, or defined twice.
    pub fn new(clause: &MatchClause, lines: &LineIndex<'_>) -> Result<Names> {
        let mut names = Names { symbols: Vec::new(), subsets: Vec::new() };
        for variable in clause.pattern.variables() {
            if !names.symbols.contains(&variable.value) {
                names.symbols.push(variable.value.clone());
            }
        }
        if names.symbols.len() > SYMBOLS_MAX {
            return Err(external(
                SqlError::new(format!("a pattern has at most {SYMBOLS_MAX} variables, this one has {}", names.symbols.len()))
                    .or_at(lines.span(clause.pattern.span()))
                    .with_help("a variable may occur several times in a pattern"),
            ));
        }
        for (subset, members) in &clause.subsets {
            if names.find(&subset.value).is_some() {
                let error = SqlError::new(format!("there is a pattern variable {} already", subset.value));
                return Err(external(error.or_at(lines.span(subset.span)).with_help("give the subset another name")));
            }
            let mut symbols = members.iter().map(|member| names.symbol(member, "SUBSET", lines)).collect::<Result<Vec<_>>>()?;
            symbols.sort_unstable();
            symbols.dedup();
            names.subsets.push((subset.value.clone(), symbols));
        }
        for (i, (variable, _)) in clause.define.iter().enumerate() {
            names.symbol(variable, "DEFINE", lines)?;
            if clause.define[..i].iter().any(|(other, _)| other.value == variable.value) {
                let error = SqlError::new(format!("{} is defined twice", variable.value)).or_at(lines.span(variable.span));
                return Err(external(error.with_help("put both conditions into one, with AND")));
            }
        }
        Ok(names)
    }

    /// The index of a variable that `place` names.
    fn symbol(&self, name: &Ident, place: &str, lines: &LineIndex<'_>) -> Result<usize> {
        match self.symbols.iter().position(|s| *s == name.value) {
            Some(index) => Ok(index),
            None => {
                let error = SqlError::new(format!("{place} names {}, which does not occur in PATTERN", name.value));
                Err(external(column_help(error.or_at(lines.span(name.span)), &name.value, self.symbols.iter().map(String::as_str))))
            }
        }
    }

    /// The symbols that a name stands for, ascending.
    pub fn find(&self, name: &str) -> Option<Vec<usize>> {
        if let Some(index) = self.symbols.iter().position(|s| s == name) {
            return Some(vec![index]);
        }
        self.subsets.iter().find(|(subset, _)| subset == name).map(|(_, symbols)| symbols.clone())
    }

    /// All names.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().chain(self.subsets.iter().map(|(name, _)| name)).map(String::as_str)
    }
}
