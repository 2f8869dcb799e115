//! Short names of the files in a query: `trades` for '/data/2024/trades.parquet', unless something else in it is called so.
//! Columns may then be written `trades.price`; and names of expressions, which hold those of all tables in them, stay short.

use std::collections::HashMap;
use std::convert::Infallible;

use sqlparser::ast::{Expr, ObjectName, Query, TableFactor};

use super::catalog::last_part;
use crate::dialect::TABLE_ARGUMENT;
use crate::walk::{self, Node};

/// The short names, by paths.
#[derive(Default)]
pub(crate) struct FileNames(HashMap<String, String>);

impl FileNames {
    /// Of the files that a query names in single quotes.
    pub fn of(query: &Query) -> Self {
        let (mut names, mut used) = (HashMap::new(), HashMap::<String, usize>::new());
        // Tables that window functions are given are no tables in the tree: one of them may be what a name means.
        let mut given = false;
        let mut uses = |name: &str| *used.entry(name.to_string()).or_default() += 1;
        let Ok(()) = walk::query::<Infallible>(query, &mut |node| {
            match node {
                Node::Query(query) => query.with.iter().flat_map(|with| &with.cte_tables).for_each(|cte| uses(&cte.alias.name.value)),
                Node::TableFactor(factor) => {
                    let alias = alias(factor);
                    alias.iter().for_each(|alias| uses(alias));
                    match factor {
                        TableFactor::Table { name, args: None, .. } if alias.is_none() => match (path(name), path(name).and_then(stem)) {
                            (Some(path), Some(stem)) => {
                                uses(stem);
                                names.insert(path.to_string(), stem.to_string());
                            }
                            (Some(_), None) => {}
                            (None, _) => uses(&last_part(name)),
                        },
                        _ => {}
                    }
                }
                Node::Expr(Expr::Function(function)) => given |= last_part(&function.name) == TABLE_ARGUMENT,
                _ => {}
            }
            Ok(())
        });
        names.retain(|_, stem| !given && used.get(stem) == Some(&1));
        FileNames(names)
    }

    /// The short name of a file that stands in FROM.
    pub fn short(&self, factor: &TableFactor) -> Option<&str> {
        let TableFactor::Table { name, args: None, alias: None, .. } = factor else { return None };
        path(name).and_then(|path| self.0.get(path)).map(String::as_str)
    }

    /// What a table is called that is given by `name`.
    pub fn called(&self, name: &ObjectName) -> String {
        path(name).and_then(|path| self.0.get(path)).cloned().unwrap_or_else(|| last_part(name))
    }
}

fn alias(factor: &TableFactor) -> Option<&str> {
    let (TableFactor::Table { alias, .. }
    | TableFactor::Derived { alias, .. }
    | TableFactor::TableFunction { alias, .. }
    | TableFactor::Function { alias, .. }
    | TableFactor::UNNEST { alias, .. }
    | TableFactor::NestedJoin { alias, .. }
    | TableFactor::MatchRecognize { alias, .. }) = factor
    else {
        return None;
    };
    alias.as_ref().map(|alias| alias.name.value.as_str())
}

/// The path that a name in single quotes is.
fn path(name: &ObjectName) -> Option<&str> {
    let [part] = name.0.as_slice() else { return None };
    let ident = part.as_ident().filter(|ident| ident.quote_style == Some('\''))?;
    Some(&ident.value)
}

/// What is left of a path without folders and endings, if it can be written as a name.
fn stem(path: &str) -> Option<&str> {
    let stem = path.rsplit('/').next()?.split('.').next()?;
    let letters = |c: char| c.is_ascii_alphabetic() || c == '_';
    (stem.starts_with(letters) && stem.chars().all(|c| letters(c) || c.is_ascii_digit())).then_some(stem)
}

#[cfg(test)]
mod tests {
    use sqlparser::ast::Statement;
    use sqlparser::dialect::GenericDialect;
    use sqlparser::parser::Parser;

    use super::*;

    fn names(sql: &str) -> Vec<(String, String)> {
        let Ok([Statement::Query(query)]) = Parser::parse_sql(&GenericDialect {}, sql).map(|s| <[Statement; 1]>::try_from(s).unwrap())
        else {
            panic!("{sql}")
        };
        let mut names: Vec<_> = FileNames::of(&query).0.into_iter().collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_called_by_their_names_where_nothing_else_is() {
        let check = |sql: &str, expect: &[(&str, &str)]| {
            let expect: Vec<_> = expect.iter().map(|(path, name)| (path.to_string(), name.to_string())).collect();
            assert_eq!(names(sql), expect, "{sql}");
        };
        check("SELECT 1 FROM '/data/t.csv.gz'", &[("/data/t.csv.gz", "t")]);
        check("SELECT 1 FROM 'a/t.csv' JOIN 'b/u_2.json' ON true", &[("a/t.csv", "t"), ("b/u_2.json", "u_2")]);
        // Two of one name, a table, an alias, a query of that name.
        check("SELECT 1 FROM 'a/t.csv', 'b/t.csv'", &[]);
        check("SELECT 1 FROM 't.csv', t", &[]);
        check("SELECT 1 FROM 't.csv' WHERE x IN (SELECT x FROM u AS t)", &[]);
        check("WITH t AS (SELECT 1) SELECT 1 FROM 't.csv'", &[]);
        check("SELECT 1 FROM 'a/t.csv' AS u", &[]);
        // What nobody could write is no name.
        check("SELECT 1 FROM 'logs/*.csv', '2005-01.txt', 's3://b/'", &[]);
    }
}
