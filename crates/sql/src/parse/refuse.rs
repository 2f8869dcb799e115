//! What is read and then refused: statements and constructs that this version does not run, or that
//! a later stage would ignore in silence. Each refusal names the construct and the nearest thing that
//! works.

use sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, ObjectName, Query, Select, SetExpr, Spanned,
    TableFactor, TableVersion,
};
use sqlparser::tokenizer::{Span as TokenSpan, Token};

use super::expression::is_clause_word;
use super::file_call::file_call;
use super::script::Script;
use super::table_call::table_call;
use super::window::{is_table_argument, is_window_function, window_call};
use crate::diagnostic::{LineIndex, Span, SqlError};
use crate::walk::{self, Node};

/// What there is in place of a function that is called for each row of a table.
const FUNCTION_OF_TABLES: &str = "CROSS JOIN UNNEST(array) AS t (x) makes rows of an array; SELECT * FROM f(TABLE t PARTITION BY k) gives a whole table to a function, which CREATE FUNCTION f RETURNS TABLE (…) LANGUAGE PROCESS AS '…' makes of a program";

/// Refuses constructs that begin with this word wherever they stand.
pub(crate) fn check_word(script: &Script<'_>, i: usize) -> Result<(), SqlError> {
    let span = |n: usize| script.span(i).to(script.span(i + n - 1));
    if script.words(i, &["LATERAL", "TABLE"]) {
        return Err(SqlError::at(span(2), "LATERAL TABLE is not supported: a function is not called for each row of a table")
            .with_help(FUNCTION_OF_TABLES));
    }
    if script.words(i, &["LATERAL", "VIEW"]) {
        return Err(SqlError::at(span(2), "LATERAL VIEW is not part of Flink SQL")
            .with_help("CROSS JOIN UNNEST(array) AS t (x) makes rows of an array"));
    }
    if ["FIRST", "NEXT"].into_iter().any(|word| script.words(i, &["FETCH", word])) {
        return Err(SqlError::at(span(2), "FETCH FIRST … ROWS ONLY is not supported").with_help("write LIMIT 10, and OFFSET behind it"));
    }
    // A common table expression may have such a name: WITH cube AS (…), WITH cube (a) AS (…).
    let named = || script.words(i + 2, &["AS"]) || script.tokens.get(i + 2).is_some_and(|t| t.token == Token::LParen);
    if ["ROLLUP", "CUBE"].into_iter().any(|word| script.words(i, &["WITH", word])) && !named() {
        return Err(SqlError::at(span(2), "WITH ROLLUP and WITH CUBE are not part of Flink SQL")
            .with_help("write GROUP BY ROLLUP (a, b), GROUP BY CUBE (a, b) or GROUPING SETS"));
    }
    // So may a table or a column.
    let named = || i > 0 && script.word(i - 1).is_some_and(|word| ["INTO", "AS", "FROM", "JOIN", "TABLE", "VIEW"].contains(&word.as_str()));
    if ["CHANGES", "FINAL", "STREAM", "WITH", "WITHOUT", "AFTER"].into_iter().any(|word| script.words(i, &["EMIT", word])) && !named() {
        return Err(SqlError::at(span(2), "EMIT is not part of Flink SQL").with_help(
            "leave it out: a running GROUP BY gives every change, TUMBLE, HOP and SESSION give a window when it ends, and CUMULATE also what it has so far",
        ));
    }
    Ok(())
}

/// The functions that can be made.
const CREATE_FUNCTION: &str = "CREATE FUNCTION f (a BIGINT) RETURNS BIGINT LANGUAGE PROCESS AS 'program arguments' makes one of a program";

/// The error for a statement that is known and not run; `None` if the words begin no such statement.
pub(crate) fn statement(script: &Script<'_>, at: usize) -> Option<SqlError> {
    let word = |n: usize| script.word(at + n).unwrap_or_default();
    let (first, second) = (word(0), word(1));
    let (count, message, help): (usize, String, &str) = match (first.as_str(), second.as_str()) {
        ("CREATE", "OR") => (3, "CREATE OR REPLACE is not supported".into(), "DROP … IF EXISTS and then CREATE"),
        ("REPLACE", _) => (1, "REPLACE TABLE is not supported".into(), "DROP TABLE IF EXISTS and then CREATE TABLE … AS"),
        ("CREATE", "SYSTEM" | "AGGREGATE" | "MACRO") => (2, format!("CREATE {second} FUNCTION is not supported"), CREATE_FUNCTION),
        ("CREATE", "TEMPORARY") if matches!(word(2).as_str(), "SYSTEM" | "AGGREGATE") => {
            (3, format!("CREATE TEMPORARY {} FUNCTION is not supported", word(2)), CREATE_FUNCTION)
        }
        ("CREATE", "CATALOG" | "DATABASE" | "SCHEMA") => (
            2,
            format!("CREATE {second} is not supported: tables live in one catalog, as long as the job runs"),
            "CREATE TABLE in the script itself",
        ),
        ("CREATE", "MODEL") => (2, "CREATE MODEL is not supported".into(), "call the model outside the job, and join its results"),
        ("CREATE", "MATERIALIZED") => {
            (2, "CREATE MATERIALIZED is not supported".into(), "CREATE TABLE for the result and INSERT INTO it: the job keeps it fresh")
        }
        ("CREATE", "EXTERNAL" | "SOURCE" | "SINK" | "STREAM" | "UNBOUNDED") => (
            2,
            format!("CREATE {second} is not part of Flink SQL"),
            "CREATE TABLE … WITH ('connector' = '…') serves for reading and writing",
        ),
        ("CREATE", "INDEX" | "UNIQUE") => {
            (2, "indexes are not supported".into(), "state is kept by the keys of joins and groups without being told")
        }
        ("CREATE", "CONNECTION") => {
            (2, "CREATE CONNECTION is not supported".into(), "the options of a connection stand in the table's WITH")
        }
        ("DROP", "TEMPORARY") if !matches!(word(2).as_str(), "TABLE" | "VIEW" | "FUNCTION" | "") => {
            (3, format!("DROP {} is not supported", word(2)), "tables, views and functions can be dropped")
        }
        ("DROP", "CATALOG" | "DATABASE" | "SCHEMA" | "MODEL" | "MATERIALIZED" | "INDEX" | "SYSTEM" | "CONNECTION") => {
            (2, format!("DROP {second} is not supported"), "tables, views and functions can be dropped")
        }
        ("ALTER", _) => (
            1,
            "ALTER is not supported".into(),
            "DROP and CREATE anew; for one query, /*+ OPTIONS('key' = 'value') */ behind the table changes options",
        ),
        ("UPDATE" | "DELETE" | "MERGE", _) => (
            1,
            format!("{first} is not supported: a job writes what its query yields"),
            "in batch mode INSERT OVERWRITE t SELECT … replaces all rows of a filesystem table by those that shall be there",
        ),
        ("TRUNCATE", _) => (
            1,
            "TRUNCATE is not supported".into(),
            "in batch mode INSERT OVERWRITE t SELECT * FROM t WHERE FALSE empties a filesystem table",
        ),
        ("ANALYZE", _) => (1, "ANALYZE is not supported: no statistics are kept".into(), "EXPLAIN shows the plan"),
        ("USE", _) => (1, "USE is not supported: there is one catalog".into(), "name the tables directly"),
        ("LOAD" | "UNLOAD" | "INSTALL", _) => (1, format!("{first} is not supported: everything there is, is loaded"), "leave it out"),
        ("ADD" | "REMOVE", "JAR") => (2, format!("{first} JAR is not supported: connectors and formats are built in"), "leave it out"),
        ("CALL", _) => (1, "CALL is not supported: there are no procedures".into(), "the command line controls jobs"),
        ("COMPILE", _) => (1, "COMPILE PLAN is not supported".into(), "EXPLAIN shows the plan"),
        ("EXECUTE", "PLAN") => (2, "EXECUTE PLAN is not supported".into(), "run the script that the plan was made of"),
        ("EXECUTE", "IMMEDIATE") => (2, "EXECUTE IMMEDIATE is not supported".into(), "write the statement itself"),
        ("STOP" | "KILL", _) => (1, format!("{first} is not supported in a script"), "the command line controls jobs"),
        ("BEGIN" | "START" | "COMMIT" | "ROLLBACK", _) => (
            1,
            "there are no transactions: a job commits at its checkpoints".into(),
            "several INSERTs run as one job in EXECUTE STATEMENT SET BEGIN … END",
        ),
        ("END", _) => (1, "END without a BEGIN STATEMENT SET".into(), "begin the set with EXECUTE STATEMENT SET BEGIN"),
        ("FROM", _) => (1, "a query cannot begin with FROM".into(), "write SELECT * FROM …"),
        ("ATTACH" | "DETACH" | "PRAGMA", _) => {
            (1, format!("{first} is not supported"), "CREATE TABLE … WITH ('connector' = '…') names other systems, SET sets options")
        }
        ("GRANT" | "REVOKE", _) => (1, format!("{first} is not supported: a job has the rights of its process"), "leave it out"),
        ("SHOW", "CREATE") if word(2) != "TABLE" => {
            (3, format!("SHOW CREATE {} is not supported", word(2)), "SHOW CREATE TABLE name, DESCRIBE name")
        }
        ("SHOW", "TABLES" | "CREATE") | ("SHOW", "") => return None,
        ("SHOW", _) => (2, format!("SHOW {second} is not supported"), "there are SHOW TABLES and SHOW CREATE TABLE name"),
        ("EXPLAIN", "ANALYZE") => (2, "EXPLAIN ANALYZE is not supported".into(), "EXPLAIN shows the plan; a run shows its metrics"),
        ("DESCRIBE" | "DESC", "JOB" | "CATALOG" | "DATABASE" | "FUNCTION" | "MODEL") if script.word(at + 2).is_some() => {
            (2, format!("{first} {second} is not supported"), "DESCRIBE shows the columns of a table or view")
        }
        _ => return None,
    };
    let span = (0..count).map(|n| at + n).filter(|i| *i < script.tokens.len()).map(|i| script.span(i)).reduce(Span::to)?;
    Some(SqlError::at(span, message).with_help(help))
}

/// Words that are likely names of columns and are reserved in Flink: an error at one of them is often
/// only a missing pair of backticks.
const RESERVED: &[&str] = &[
    "COUNT",
    "CURRENT",
    "DATE",
    "DAY",
    "DESCRIBE",
    "END",
    "FLOOR",
    "FROM",
    "GROUP",
    "HOUR",
    "INTERVAL",
    "KEY",
    "LIMIT",
    "MATCH",
    "METHOD",
    "MINUTE",
    "MONTH",
    "OFFSET",
    "ORDER",
    "PARTITION",
    "POSITION",
    "RANGE",
    "RESULT",
    "ROW",
    "ROWS",
    "SECOND",
    "SET",
    "START",
    "TABLE",
    "TIME",
    "TIMESTAMP",
    "TO",
    "TOP",
    "USER",
    "VALUE",
    "VALUES",
    "WHERE",
    "YEAR",
];

/// Advice for an error at a reserved word.
pub(crate) fn reserved_help(word: &str) -> Option<String> {
    let upper = word.to_ascii_uppercase();
    RESERVED
        .contains(&upper.as_str())
        .then(|| format!("{upper} is a reserved word; if it is meant as a name, write it in backticks: `{}`", word.to_ascii_lowercase()))
}

/// Refuses what a query holds.
pub(crate) fn check_query(query: &Query, lines: &LineIndex<'_>) -> Result<(), SqlError> {
    let mut refuser = Refuser { lines, of_tables: Vec::new() };
    walk::query(query, &mut |node| refuser.check(node))
}

/// Refuses what an expression holds.
pub(crate) fn check_expr(expr: &Expr, lines: &LineIndex<'_>) -> Result<(), SqlError> {
    let mut refuser = Refuser { lines, of_tables: Vec::new() };
    walk::expr(expr, &mut |node| refuser.check(node))
}

struct Refuser<'l> {
    lines: &'l LineIndex<'l>,
    /// Where the names stand of functions in FROM that take a table.
    of_tables: Vec<TokenSpan>,
}

impl Refuser<'_> {
    fn check(&mut self, node: Node<'_>) -> Result<(), SqlError> {
        match node {
            Node::Query(query) => self.check_query(query),
            Node::Select(select) => self.check_select(select),
            Node::TableFactor(factor) => self.check_table_factor(factor),
            Node::Expr(expr) => self.check_expr(expr),
            Node::Relation(_) => Ok(()),
        }
    }

    fn refuse(&self, span: TokenSpan, message: &str, help: &str) -> Result<(), SqlError> {
        let error = SqlError::new(message).or_at(self.lines.span(span));
        Err(if help.is_empty() { error } else { error.with_help(help) })
    }

    /// A function that takes a table stands in FROM.
    fn check_call(&self, name: &ObjectName, args: &[FunctionArg]) -> Result<(), SqlError> {
        let takes_table = args.iter().any(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e))
            | FunctionArg::Named { arg: FunctionArgExpr::Expr(e), .. }
            | FunctionArg::ExprNamed { arg: FunctionArgExpr::Expr(e), .. } => is_table_argument(e),
            _ => false,
        });
        if takes_table && !is_window_function(name) {
            return self.refuse(
                name.span(),
                &format!("{name} cannot take a table here: a function of tables stands in FROM"),
                &format!("write SELECT * FROM {name}(TABLE t PARTITION BY k)"),
            );
        }
        Ok(())
    }

    /// What stands in a call or behind it that the function of this name does not take.
    fn check_arguments(&self, function: &Function) -> Result<(), SqlError> {
        let Some(ident) = function.name.0.last().and_then(|part| part.as_ident()) else { return Ok(()) };
        let name = ident.value.to_ascii_uppercase();
        match (name.as_str(), &function.args) {
            ("JSON_OBJECT", FunctionArguments::List(list)) if !list.args.iter().all(|arg| matches!(arg, FunctionArg::Unnamed(_))) => self
                .refuse(
                    ident.span,
                    "JSON_OBJECT takes keys and values with commas between them, not KEY … VALUE …",
                    "write JSON_OBJECT('a', x, 'b', y)",
                ),
            ("FIRST_VALUE" | "LAST_VALUE" | "NTH_VALUE", _) if !function.within_group.is_empty() => self.refuse(
                ident.span,
                &format!("{name} has no WITHIN GROUP"),
                "QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) = 1 keeps the first row of each key in any order",
            ),
            _ => Ok(()),
        }
    }

    fn check_query(&self, query: &Query) -> Result<(), SqlError> {
        if matches!(*query.body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)) {
            return self.refuse(
                query.body.span(),
                "a statement that writes cannot be part of a query",
                "WITH stands behind INSERT INTO t, before its SELECT",
            );
        }
        if !query.locks.is_empty() || query.for_clause.is_some() {
            return self.refuse(query.body.span(), "FOR UPDATE and its like are not supported: nothing is locked", "leave it out");
        }
        if let Some(with) = query.with.as_ref().filter(|with| with.recursive)
            && with.cte_tables.iter().any(|cte| matches!(*cte.query.body, SetExpr::SetOperation { .. }))
        {
            return self.refuse(
                with.with_token.0.span,
                "WITH RECURSIVE is not supported: a query cannot read its own result",
                "to a depth that is known, write one JOIN of the table with itself for each step, and UNION ALL between the steps",
            );
        }
        Ok(())
    }

    fn check_select(&self, select: &Select) -> Result<(), SqlError> {
        let span = select.select_token.0.span;
        if select.top.is_some() {
            return self.refuse(span, "TOP is not part of Flink SQL", "write LIMIT at the end; a column of the name top needs backticks");
        }
        if select.into.is_some() {
            return self.refuse(span, "SELECT … INTO is not part of Flink SQL", "write INSERT INTO t SELECT …");
        }
        if !select.cluster_by.is_empty() || !select.distribute_by.is_empty() || !select.sort_by.is_empty() {
            return self.refuse(span, "CLUSTER BY, DISTRIBUTE BY and SORT BY are not part of Flink SQL", "ORDER BY sorts");
        }
        if !select.connect_by.is_empty() {
            return self.refuse(span, "CONNECT BY is not part of Flink SQL", "");
        }
        if let Some(Distinct::On(_)) = select.distinct {
            return self.refuse(
                span,
                "DISTINCT ON is not part of Flink SQL",
                "QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) = 1 keeps one row of each k",
            );
        }
        for join in select.from.iter().flat_map(|table| &table.joins) {
            let span = join.relation.span();
            match join.join_operator {
                JoinOperator::Semi(_) | JoinOperator::Anti(_) => {
                    return self.refuse(span, "SEMI JOIN and ANTI JOIN are not part of Flink SQL", "write WHERE [NOT] EXISTS (SELECT …)");
                }
                JoinOperator::CrossApply | JoinOperator::OuterApply => {
                    return self.refuse(span, "CROSS APPLY and OUTER APPLY are not part of Flink SQL", "write a JOIN");
                }
                JoinOperator::AsOf { .. } => {
                    return self.refuse(
                        span,
                        "ASOF JOIN is not part of Flink SQL",
                        "JOIN t FOR SYSTEM_TIME AS OF a.rt joins each row with the version valid at its time",
                    );
                }
                JoinOperator::StraightJoin(_) | JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin | JoinOperator::InnerArrayJoin => {
                    return self.refuse(
                        span,
                        "this kind of join is not part of Flink SQL",
                        "write a JOIN, or CROSS JOIN UNNEST(array) AS t (x)",
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_table_factor(&mut self, factor: &TableFactor) -> Result<(), SqlError> {
        if let Some(Err(error)) = window_call(factor, self.lines) {
            return Err(error);
        }
        let of_tables = match table_call(factor, self.lines) {
            Some(Err(error)) => return Err(error),
            Some(Ok(call)) => {
                self.of_tables.push(call.name.span());
                true
            }
            None => false,
        };
        if let Some(Err(error)) = file_call(factor, self.lines) {
            return Err(error);
        }
        let span = factor.span();
        match factor {
            TableFactor::Table { name, args, with_hints, version, partitions, with_ordinality, sample, json_path, index_hints, .. } => {
                if let [part] = name.0.as_slice()
                    && let Some(ident) = part.as_ident().filter(|i| i.quote_style.is_none())
                    && let Token::Word(word) = Token::make_keyword(&ident.value)
                    && is_clause_word(word.keyword)
                {
                    return self.refuse(
                        ident.span,
                        &format!("expected a table, found {ident}"),
                        "if it is meant as a name, write it in backticks",
                    );
                }
                if version.as_ref().is_some_and(|v| !matches!(v, TableVersion::ForSystemTimeAsOf(_))) {
                    return self.refuse(
                        span,
                        "a version of a table is not chosen like this",
                        "JOIN t FOR SYSTEM_TIME AS OF a.rt joins each row with the version valid at its time",
                    );
                }
                if sample.is_some() {
                    return self.refuse(span, "TABLESAMPLE is not supported", "WHERE RAND() < 0.1 keeps a tenth of the rows");
                }
                if !with_hints.is_empty() || !index_hints.is_empty() {
                    return self.refuse(span, "hints are not written like this", "write t /*+ OPTIONS('key' = 'value') */");
                }
                if !partitions.is_empty() || json_path.is_some() {
                    return self.refuse(span, "a part of a table cannot be chosen like this", "WHERE chooses rows");
                }
                if *with_ordinality {
                    return self.refuse(span, "WITH ORDINALITY is not supported here", "");
                }
                if let (Some(args), false) = (args, of_tables) {
                    return self.check_call(name, &args.args);
                }
            }
            TableFactor::TableFunction { expr: Expr::Function(function), .. } if !of_tables => {
                if let FunctionArguments::List(list) = &function.args {
                    return self.check_call(&function.name, &list.args);
                }
            }
            TableFactor::Function { .. } => {
                return self.refuse(span, "LATERAL functions are not supported", FUNCTION_OF_TABLES);
            }
            TableFactor::UNNEST { with_offset: true, .. } => return self.refuse(span, "UNNEST WITH OFFSET is not supported", ""),
            TableFactor::Derived { sample: Some(_), .. } => {
                return self.refuse(span, "TABLESAMPLE is not supported", "WHERE RAND() < 0.1 keeps a tenth of the rows");
            }
            TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } => {
                return self.refuse(
                    span,
                    "PIVOT and UNPIVOT are not part of Flink SQL",
                    "SUM(x) FILTER (WHERE k = 'a') AS a makes a column of a value",
                );
            }
            TableFactor::JsonTable { .. }
            | TableFactor::OpenJsonTable { .. }
            | TableFactor::XmlTable { .. }
            | TableFactor::SemanticView { .. } => {
                return self.refuse(
                    span,
                    "this kind of table function is not part of Flink SQL",
                    "JSON_VALUE reads a value out of a JSON text",
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn check_expr(&self, expr: &Expr) -> Result<(), SqlError> {
        if let Expr::InSubquery { expr, .. } = expr
            && let Expr::Tuple(_) = expr.as_ref()
        {
            return self.refuse(
                expr.span(),
                "IN (SELECT …) compares one column, not several at once",
                "write [NOT] EXISTS (SELECT 1 FROM t WHERE t.a = a AND t.b = b)",
            );
        }
        if let Expr::Function(function) = expr {
            self.check_arguments(function)?;
        }
        if let Expr::Function(function) = expr
            && let FunctionArguments::List(list) = &function.args
            && !self.of_tables.contains(&function.name.span())
        {
            return self.check_call(&function.name, &list.args);
        }
        Ok(())
    }
}
