//! Statements in the binary log: what they mean for the table that is followed.
//!
//! In a log of rows statements begin and end transactions and change definitions. The first words say which it is; whether
//! the table is meant, whether its name is among the words. A name in a text or a comment counts as well, which costs
//! a second look at the table or, where rows might be lost, a refusal.

use super::catalog::Table;

/// What a statement means for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// A transaction begins.
    Begin,
    /// It ends.
    Commit,
    /// Something of an open transaction is taken back.
    Rollback,
    /// Nothing, and the transaction goes on.
    Within,
    /// The table was altered.
    Altered,
    /// Its rows are gone without a word.
    Emptied,
    /// Its rows were changed, and the log does not say how.
    Unlogged,
    /// Something else, which ends a transaction.
    Other,
}

/// What `sql` means for a table; `schema` is the database that names without one are of.
pub(super) fn meaning(sql: &str, schema: &str, table: &Table) -> Meant {
    let sql = uncommented(sql);
    let mut words = sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty()).map(str::to_ascii_uppercase);
    let first = words.next().unwrap_or_default();
    let second = words.next().unwrap_or_default();
    match (first.as_str(), second.as_str()) {
        ("BEGIN", _) | ("START", "TRANSACTION") | ("XA", "START" | "BEGIN") => return Meant::Begin,
        ("COMMIT", _) | ("XA", "COMMIT" | "ROLLBACK") => return Meant::Commit,
        ("ROLLBACK", _) => return Meant::Rollback,
        // Nothing but a comment.
        ("", _) => return Meant::Within,
        ("SAVEPOINT" | "RELEASE" | "SET", _) | ("XA", _) => return Meant::Within,
        // Tables that go with their database are not named.
        ("DROP", "DATABASE" | "SCHEMA") => return if drops(sql, &table.database) { Meant::Emptied } else { Meant::Other },
        _ => {}
    }
    if !names(sql, schema, table) {
        return if matches!(first.as_str(), "INSERT" | "UPDATE" | "DELETE" | "REPLACE" | "LOAD") { Meant::Within } else { Meant::Other };
    }
    let has = |word: &str| words_of(sql).any(|w| w.eq_ignore_ascii_case(word));
    match first.as_str() {
        "TRUNCATE" | "RENAME" => Meant::Emptied,
        "DROP" if second == "TABLE" => Meant::Emptied,
        "CREATE" if second == "OR" && has("TABLE") => Meant::Emptied,
        "ALTER" if has("RENAME") && has("TO") && !has("COLUMN") && !has("INDEX") && !has("KEY") => Meant::Emptied,
        "ALTER" if has("PARTITION") && (has("TRUNCATE") || has("DROP") || has("EXCHANGE")) => Meant::Emptied,
        "ALTER" => Meant::Altered,
        "INSERT" | "UPDATE" | "DELETE" | "REPLACE" | "LOAD" => Meant::Unlogged,
        _ => Meant::Other,
    }
}

/// Without comments in front.
fn uncommented(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start();
        let blank = |rest: &str| rest.is_empty() || rest.starts_with(char::is_whitespace);
        if sql.starts_with('#') || sql.strip_prefix("--").is_some_and(blank) {
            sql = sql.split_once('\n').map_or("", |(_, rest)| rest);
            continue;
        }
        // What stands in /*! … */ is a statement.
        match sql.strip_prefix("/*").filter(|rest| !rest.starts_with('!')).and_then(|rest| rest.split_once("*/")) {
            Some((_, rest)) => sql = rest,
            None => return sql,
        }
    }
}

fn words_of(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$'))).filter(|w| !w.is_empty())
}

/// Whether a name is in a statement.
fn mentions(sql: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    let plain = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$'));
    if plain { words_of(sql).any(|word| word.to_lowercase() == name) } else { sql.to_lowercase().contains(&name) }
}

/// Whether `DROP DATABASE` is of this one: its name stands in quotes, or is a word outside of them.
fn drops(sql: &str, database: &str) -> bool {
    if database.contains(['`', '"']) {
        return mentions(sql, database);
    }
    let (sql, name) = (sql.to_lowercase(), database.to_lowercase());
    let mut pieces = sql.split(['`', '"']).enumerate();
    pieces.any(|(at, piece)| if at % 2 == 1 { piece == name } else { words_of(piece).any(|word| word == name) })
}

/// Whether the name of the table is in a statement, as one of its database.
fn names(sql: &str, schema: &str, table: &Table) -> bool {
    let in_database = schema.to_lowercase() == table.database.to_lowercase();
    mentions(sql, &table.name) && (in_database || sql.to_lowercase().contains(&table.database.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_mean_something() {
        let table = Table { database: "shop".into(), name: "orders".into(), width: 0, wanted: Vec::new(), described: Vec::new().into() };
        #[track_caller]
        fn check(table: &Table, sql: &str, expect: Meant) {
            assert_eq!(meaning(sql, "shop", table), expect, "{sql}");
        }
        for (sql, expect) in [
            ("BEGIN", Meant::Begin),
            ("COMMIT", Meant::Commit),
            ("ROLLBACK TO `s`", Meant::Rollback),
            ("SAVEPOINT `s`", Meant::Within),
            ("XA START X'01',X'',1", Meant::Begin),
            ("XA END X'01',X'',1", Meant::Within),
            ("/* ApplicationName=x */ TRUNCATE orders", Meant::Emptied),
            ("# Dummy event replacing event type 160 that orders can", Meant::Within),
            ("# a\n-- b\n TRUNCATE orders", Meant::Emptied),
            ("TRUNCATE TABLE orders_old", Meant::Other),
            ("DROP TABLE `orders` /* generated by server */", Meant::Emptied),
            ("DROP DATABASE `shop`", Meant::Emptied),
            ("DROP DATABASE `shop-test`", Meant::Other),
            ("DROP DATABASE IF EXISTS `Shop` /* x */", Meant::Emptied),
            ("drop schema if exists Shop", Meant::Emptied),
            ("DROP DATABASE shops", Meant::Other),
            ("RENAME TABLE orders TO o, o2 TO orders", Meant::Emptied),
            ("ALTER TABLE shop.orders ADD COLUMN note text", Meant::Altered),
            ("ALTER TABLE orders RENAME COLUMN a TO b", Meant::Altered),
            ("ALTER TABLE orders RENAME TO o", Meant::Emptied),
            ("ALTER TABLE orders DROP PARTITION p1", Meant::Emptied),
            ("ALTER TABLE others ADD COLUMN note text", Meant::Other),
            ("CREATE INDEX i ON orders (a)", Meant::Other),
            ("UPDATE Orders SET a = 1", Meant::Unlogged),
            ("INSERT INTO others VALUES (1)", Meant::Within),
            ("GRANT ALL ON *.* TO u", Meant::Other),
        ] {
            check(&table, sql, expect);
        }
        assert_eq!(meaning("TRUNCATE orders", "elsewhere", &table), Meant::Other);
        assert_eq!(meaning("TRUNCATE shop.orders", "elsewhere", &table), Meant::Emptied);
    }
}
