//! Flink's dialect for sqlparser: what is a name, which constructs are switched on, and the hooks
//! through which the Flink-only expressions are read (they are in `parse::expression`).
//!
//! What stands in the tree that sqlparser has no words for:
//!
//! | written | in the tree |
//! |---|---|
//! | `TABLE t [PARTITION BY k, …]`, `TABLE (query)` as an argument | function [`TABLE_ARGUMENT`] with the name or subquery, then the keys; `parse::window_call` decodes it |
//! | `TIMESTAMPADD(HOUR, …)`, `TIMESTAMPDIFF(DAY, …)` | the unit is a string literal in upper case, singular |
//! | `x IS [NOT] JSON` | `[NOT] is_json(x)` |
//! | `JSON_VALUE(x, p RETURNING t)` | `json_value_as_bigint`, `_double`, `_boolean`, `_string`, in a TRY_CAST where `t` is another type |
//! | `TIMESTAMP_LTZ(p)`, `TIMESTAMP(p) WITH LOCAL TIME ZONE` | custom type `TIMESTAMP_LTZ` with modifier `p` |
//! | `ROW<a INT>` and `ROW(a INT)` | struct type with angle brackets |
//! | `t MATCH_RECOGNIZE (…)` | table function of the call `__MATCH`; `parse::match_recognize` decodes it |
//! | `FINAL f(x)`, `RUNNING f(x)` | functions `__FINAL` and `__RUNNING` of the call |

use std::any::TypeId;
use std::cell::RefCell;

use sqlparser::ast::Expr;
use sqlparser::dialect::{Dialect, GenericDialect};
use sqlparser::keywords::{Keyword, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_TABLE_ALIAS};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Location;

use crate::parse::expression;

/// The name of the function call that stands for a table argument in the tree.
pub const TABLE_ARGUMENT: &str = "__TABLE";

/// Flink's dialect. One instance serves one parse: it remembers the furthest error of its hooks,
/// which sqlparser forgets when it goes back to try another way.
#[derive(Debug, Default)]
pub struct FlinkDialect {
    furthest: RefCell<Option<(Location, ParserError)>>,
}

impl FlinkDialect {
    /// Keeps an error of a hook if it lies further on than the one kept.
    fn note(&self, error: &ParserError) {
        let Some(location) = expression::location_of(error) else { return };
        let mut furthest = self.furthest.borrow_mut();
        if furthest.as_ref().is_none_or(|(at, _)| *at < location) {
            *furthest = Some((location, error.clone()));
        }
    }

    /// The furthest error of a hook, which is then forgotten.
    pub(crate) fn take_furthest(&self) -> Option<(Location, ParserError)> {
        self.furthest.borrow_mut().take()
    }

    fn noted(&self, result: Option<Result<Expr, ParserError>>) -> Option<Result<Expr, ParserError>> {
        if let Some(Err(error)) = &result {
            self.note(error);
        }
        result
    }
}

/// Words that begin something else and are no alias unless AS or backticks say so.
fn begins_other(keyword: Keyword) -> bool {
    expression::is_clause_word(keyword) || matches!(keyword, Keyword::CREATE | Keyword::DROP | Keyword::EXECUTE | Keyword::INSERT)
}

impl Dialect for FlinkDialect {
    // sqlparser asks in places for the type of the dialect rather than for a property (UNNEST in
    // FROM is one): there we are like the generic one.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn identifier_quote_style(&self, _identifier: &str) -> Option<char> {
        Some('`')
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    // Words that begin an expression of their own. Reserved in Flink too; and were they not, sqlparser
    // would read a faulty CAST(CAST(CAST(… twice per level.
    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        matches!(
            kw,
            Keyword::ARRAY
                | Keyword::CASE
                | Keyword::CAST
                | Keyword::CEIL
                | Keyword::CONVERT
                | Keyword::EXISTS
                | Keyword::EXTRACT
                | Keyword::FLOOR
                | Keyword::INTERVAL
                | Keyword::NOT
                | Keyword::OVERLAY
                | Keyword::POSITION
                | Keyword::SAFE_CAST
                | Keyword::SUBSTRING
                | Keyword::SUBSTR
                | Keyword::TRIM
                | Keyword::TRY_CAST
                | Keyword::TRY_CONVERT
        )
    }

    // `INSERT INTO s SELECT 1 ON CONFLICT …` has no column named ON, and where a semicolon is missing,
    // the next statement is not an alias.
    fn is_column_alias(&self, kw: &Keyword, _parser: &mut Parser) -> bool {
        !RESERVED_FOR_COLUMN_ALIAS.contains(kw) && !begins_other(*kw)
    }

    fn is_table_alias(&self, kw: &Keyword, _parser: &mut Parser) -> bool {
        !RESERVED_FOR_TABLE_ALIAS.contains(kw) && !begins_other(*kw)
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.noted(expression::prefix(parser))
    }

    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, _precedence: u8) -> Option<Result<Expr, ParserError>> {
        self.noted(expression::infix(parser, expr))
    }

    fn supports_unicode_string_literal(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    // `parse::match_recognize` reads it.
    fn supports_match_recognize(&self) -> bool {
        false
    }

    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }
}
