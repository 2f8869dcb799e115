//! Random queries whose results are updated: running groups and rankings, over rows that only grow and over one
//! another. Queries of two inputs are in [`super::pairs`].
//!
//! What has no one result stays out: rows that sort alike in a ranking, aggregates by the order of arrival, and the
//! aggregate of no rows at all, which is a row in batch mode and none in a stream.

use super::super::expression::{Kind, maybe_having, maybe_where};
use super::Generator;

/// The columns of every input, as `events` has them.
pub(super) const ROW: &str = "id, k, g, x, y, t";

/// A table with the columns of `events`, some of them computed.
#[derive(Clone)]
pub(super) struct Input {
    pub(super) table: String,
    /// No two rows have the same `id`.
    unique: bool,
    /// `t` is event time, and no two rows have the same.
    timed: bool,
}

impl Generator<'_> {
    /// A query whose result may be updated.
    pub(super) fn changing(&mut self) -> (String, Vec<Kind>) {
        match self.random.between(0, 99) {
            0..=24 => self.running_group(),
            25..=34 => self.grouping_sets(),
            35..=52 => self.ranked(),
            53..=68 => self.set_operation(),
            69..=83 => self.join(),
            84..=93 => self.subquery(),
            _ => self.elements(),
        }
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// An input that lies at most so many updating queries above rows that only grow.
    pub(super) fn updated(&mut self, depth: u32) -> Input {
        if depth == 0 || self.random.chance(35) {
            return self.growing();
        }
        let below = self.updated(depth - 1);
        match self.random.between(0, 9) {
            0..=4 => self.group_rows(&below),
            5 | 6 => self.best_rows(&below),
            7 | 8 => {
                let other = self.beside(&below, depth - 1);
                self.common_rows(&below, &other)
            }
            _ => {
                let other = self.beside(&below, depth - 1);
                let pairs = self.pairs(&below, &other);
                let table = self.view(&format!("SELECT {ROW} FROM ({pairs})"));
                Input { table, unique: false, timed: false }
            }
        }
    }

    /// What a table is put together with: itself half of the time, so that rows have partners.
    pub(super) fn beside(&mut self, input: &Input, depth: u32) -> Input {
        if self.random.chance(50) { input.clone() } else { self.updated(depth) }
    }

    /// Rows that are never taken back.
    fn growing(&mut self) -> Input {
        match self.random.between(0, 9) {
            0 => {
                let table = self.input(true);
                let size = super::interval(*self.random.pick(&[&1000i64, &5000, &20_000]));
                let condition = maybe_where(self.random);
                let table = self.view(&format!(
                    "SELECT MAX(id) AS id, k, g, SUM(x) AS x, MAX(y) AS y, window_end AS t \
                     FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(t), {size})){condition} GROUP BY k, g, window_start, window_end"
                ));
                Input { table, unique: false, timed: false }
            }
            1 => {
                let table = self.input(self.ties);
                let over = self.over_window();
                let x = self.random.pick(&["SUM(x)", "COUNT(*)", "MAX(x)"]);
                let table = self.view(&format!("SELECT id, k, g, {x} OVER ({over}) AS x, y, t FROM {table}"));
                Input { table, unique: !self.ties, timed: false }
            }
            2 | 3 => Input { table: self.input(true), unique: false, timed: false },
            _ => Input { table: self.input(false), unique: true, timed: !self.ties },
        }
    }

    /// Running groups. A group's `id` is the largest of its rows, so groups differ in it if the rows do.
    fn group_rows(&mut self, below: &Input) -> Input {
        let (k, g, keys) = *self.random.pick(&[
            &("k", "g", "k, g"),
            &("k", "g", "k, g, MOD(id, 3)"),
            &("k", "CAST(COUNT(*) AS INT)", "k"),
            &("k", "CAST(MOD(COUNT(*), 4) AS INT)", "k"),
            &("MAX(k)", "g", "g"),
        ]);
        let x = self.random.pick(&["SUM(x)", "COUNT(*)", "MIN(x)", "MAX(x)", "COUNT(DISTINCT x)", "AVG(x)", "SUM(x) FILTER (WHERE g > 0)"]);
        let y = self.random.pick(&["SUM(y)", "MIN(y)", "MAX(y)", "AVG(y)"]);
        let (condition, having) = (maybe_where(self.random), maybe_having(self.random));
        // The names are given outside: a column in HAVING would be taken for the aggregate of its name.
        let table = self.view(&format!(
            "SELECT a AS id, b AS k, c AS g, d AS x, e AS y, f AS t FROM (\
             SELECT MAX(id) AS a, {k} AS b, {g} AS c, {x} AS d, {y} AS e, MIN(t) AS f FROM {}{condition} GROUP BY {keys}{having})",
            below.table
        ));
        Input { table, unique: below.unique, timed: false }
    }

    /// The first rows of each key.
    fn best_rows(&mut self, below: &Input) -> Input {
        let (over, ranks) = (self.ranking(below), self.random.between(1, 4));
        let table =
            self.view(&format!("SELECT {ROW} FROM (SELECT *, ROW_NUMBER() OVER ({over}) AS rn FROM {}) WHERE rn <= {ranks}", below.table));
        Input { table, unique: below.unique, timed: false }
    }

    /// A set operation on the rows of two tables.
    fn common_rows(&mut self, left: &Input, right: &Input) -> Input {
        let operation = self.random.pick(&["UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]);
        let (first, second) = (maybe_where(self.random), maybe_where(self.random));
        let table = self.view(&format!("SELECT {ROW} FROM {}{first} {operation} SELECT {ROW} FROM {}{second}", left.table, right.table));
        Input { table, unique: left.unique && operation != "UNION", timed: false }
    }

    // ---- groups ------------------------------------------------------------------------------

    fn running_group(&mut self) -> (String, Vec<Kind>) {
        let input = self.updated(2);
        let (keys, calls) = (self.keys(), self.aggregates());
        let named = keys.iter().enumerate().map(|(i, key)| format!("{} AS k{i}", key.0));
        let items: Vec<String> = named.chain(calls.iter().enumerate().map(|(i, call)| format!("{} AS a{i}", call.0))).collect();
        let columns = keys.iter().map(|key| key.1).chain(calls.iter().map(|call| call.1)).collect();
        let condition = maybe_where(self.random);
        let end = if keys.is_empty() {
            " HAVING COUNT(*) > 0".to_string()
        } else {
            let keys: Vec<&str> = keys.iter().map(|key| key.0).collect();
            format!(" GROUP BY {}{}", keys.join(", "), maybe_having(self.random))
        };
        (format!("SELECT {} FROM {}{condition}{end}", items.join(", "), input.table), columns)
    }

    fn grouping_sets(&mut self) -> (String, Vec<Kind>) {
        let input = self.updated(1);
        let sets = self.random.pick(&[
            "ROLLUP (k, g)",
            "CUBE (k, g)",
            "CUBE (k, g, x > 0)",
            "GROUPING SETS ((k), (g))",
            "GROUPING SETS ((k, g), (g), ())",
            "GROUPING SETS ((g), (k), (g))",
            "g, GROUPING SETS ((k), ())",
        ]);
        let calls = self.aggregates();
        let list: Vec<String> = calls.iter().enumerate().map(|(i, call)| format!("{} AS a{i}", call.0)).collect();
        let having = self.random.pick(&["COUNT(*) > 0", "COUNT(*) > 0", "COUNT(*) > 2", "SUM(x) > 0"]);
        let condition = maybe_where(self.random);
        let sql = format!(
            "SELECT k, g, GROUPING(k, g) AS s, {} FROM {}{condition} GROUP BY {sets} HAVING {having}",
            list.join(", "),
            input.table
        );
        (sql, [Kind::Text, Kind::Int, Kind::Int].into_iter().chain(calls.iter().map(|call| call.1)).collect())
    }

    // ---- rankings ----------------------------------------------------------------------------

    fn partition(&mut self) -> &'static str {
        self.random.pick(&["", "PARTITION BY k ", "PARTITION BY k ", "PARTITION BY g ", "PARTITION BY k, g ", "PARTITION BY MOD(id, 3) "])
    }

    /// All columns in some order: rows that sort alike by it are equal.
    fn order_by_all(&mut self) -> String {
        let columns: Vec<&str> = ROW.split(", ").collect();
        let columns = self.random.some(&columns, columns.len());
        let ends: [&str; 4] = ["", " DESC", " NULLS LAST", " DESC NULLS FIRST"];
        let sorted: Vec<String> = columns.iter().map(|column| format!("{column}{}", self.random.pick(&ends))).collect();
        format!("ORDER BY {}", sorted.join(", "))
    }

    /// A window in which every row has its own number.
    fn ranking(&mut self, input: &Input) -> String {
        let partition = self.partition();
        let order = match self.random.between(0, 9) {
            0..=2 if input.timed => format!("ORDER BY {}", self.random.pick(&["t", "t DESC"])),
            0..=5 if input.unique => {
                let order = self.random.pick(&["id", "id DESC", "x, id", "x DESC, id", "y DESC, id DESC", "g, k, id", "t, id"]);
                format!("ORDER BY {order}")
            }
            _ => self.order_by_all(),
        };
        format!("{partition}{order}")
    }

    fn ranked(&mut self) -> (String, Vec<Kind>) {
        let input = self.updated(2);
        let table = &input.table;
        let row = vec![Kind::Int, Kind::Text, Kind::Int, Kind::Int, Kind::Double, Kind::Time];
        let with_rank = vec![Kind::Int, Kind::Text, Kind::Int, Kind::Int];
        let ranks = self.random.between(1, 5);
        match self.random.between(0, 9) {
            0..=3 => {
                let over = self.ranking(&input);
                let bound = self.random.pick(&["rn <= 3", "rn = 1", "rn < 5 AND g > 0", "rn BETWEEN 2 AND 4", "rn IN (1, 3)", "2 >= rn"]);
                let sql = format!("SELECT id, k, x, rn FROM (SELECT *, ROW_NUMBER() OVER ({over}) AS rn FROM {table}) WHERE {bound}");
                (sql, with_rank)
            }
            4 | 5 => {
                let over = self.ranking(&input);
                let first = if self.random.chance(50) { 1 } else { ranks };
                let sql = format!("SELECT {ROW} FROM (SELECT *, ROW_NUMBER() OVER ({over}) AS rn FROM {table}) WHERE rn <= {first}");
                (sql, row)
            }
            6 | 7 => {
                // Rows that sort alike share these.
                let function = self.random.pick(&["RANK", "DENSE_RANK"]);
                let order = self.random.pick(&["x", "x DESC", "g DESC", "y", "k", "g, k DESC"]);
                let partition = self.partition();
                let sql = format!(
                    "SELECT id, k, x, rn FROM (SELECT *, {function}() OVER ({partition}ORDER BY {order}) AS rn FROM {table}) \
                     WHERE rn <= {ranks}"
                );
                (sql, with_rank)
            }
            8 => {
                let over = self.ranking(&input);
                (format!("SELECT {ROW} FROM {table} QUALIFY ROW_NUMBER() OVER ({over}) <= {ranks}"), row)
            }
            _ => {
                let order = self.order_by_all();
                let offset = if self.random.chance(30) { format!(" OFFSET {}", self.random.between(1, 3)) } else { String::new() };
                (format!("SELECT {ROW} FROM {table} {order} LIMIT {}{offset}", ranks * 3), row)
            }
        }
    }
}
