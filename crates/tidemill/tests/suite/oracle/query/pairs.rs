//! Random queries of two inputs that may be updated: regular joins, set operations and subqueries; and `UNNEST`, which
//! joins a row with the elements of its own array. Inputs of joins are cut down, so that pairs are not too many.

use super::super::expression::{Kind, maybe_where, truth};
use super::Generator;
use super::changing::{Input, ROW};

impl Generator<'_> {
    /// The rows of a table that one in so many has, by their `id`.
    fn part(&mut self, input: &Input, of: i64) -> String {
        if of == 1 {
            return input.table.clone();
        }
        let rest = self.random.between(0, of - 1);
        self.view(&format!("SELECT {ROW} FROM {} WHERE MOD(id, {of}) = {rest}", input.table))
    }

    // ---- joins -------------------------------------------------------------------------------

    /// A regular join: the columns of `events`, each of either side, and `other`, the `id` of the right one.
    pub(super) fn pairs(&mut self, left: &Input, right: &Input) -> String {
        // A condition, and how large a part of the inputs it takes.
        let (keys, of) = *self.random.pick(&[
            &("l.k = r.k", 5i64),
            &("l.g = r.g", 5),
            &("l.k = r.k AND l.g = r.g", 3),
            &("l.k = r.k AND l.g = r.g", 3),
            &("l.k IS NOT DISTINCT FROM r.k AND l.g = r.g", 3),
            &("l.k IS NOT DISTINCT FROM r.k", 5),
            &("l.x = r.x", 4),
            &("l.x = r.g", 4),
            &("l.id = r.id", 1),
            &("l.id = r.id + 1", 1),
            &("MOD(l.id, 7) = MOD(r.x, 5)", 5),
            &("UPPER(l.k) = r.k", 5),
            &("l.x < r.x AND l.y >= r.y", 10),
        ]);
        let kind = self.random.pick(&["JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN"]);
        let residual = if self.random.chance(35) {
            let residual = ["l.x > r.x", "l.id < r.id", "l.id <> r.id", "l.y <= r.y + 1.0", "l.x + r.x > 0", "l.x > 0", "r.g <> 1"];
            format!(" AND {}", self.random.pick(&residual))
        } else {
            String::new()
        };
        let (left, right) = (self.part(left, of), self.part(right, of));
        let columns: Vec<String> = ["k", "g", "x", "y", "t"]
            .iter()
            .map(|column| {
                let side = self.random.pick(&["l", "r"]);
                format!("{side}.{column} AS {column}")
            })
            .collect();
        format!("SELECT l.id AS id, r.id AS other, {} FROM {left} AS l {kind} {right} AS r ON {keys}{residual}", columns.join(", "))
    }

    pub(super) fn join(&mut self) -> (String, Vec<Kind>) {
        let left = self.updated(1);
        let right = self.beside(&left, 1);
        let pairs = self.pairs(&left, &right);
        let condition = match self.random.between(0, 9) {
            0 => " WHERE other IS NULL".to_string(),
            1 => " WHERE id IS NULL".to_string(),
            _ => maybe_where(self.random),
        };
        let kinds: Vec<Kind> = (0..self.random.between(1, 3)).map(|_| Kind::any(self.random)).collect();
        let list = self.list(&kinds);
        let columns = [Kind::Int, Kind::Int].into_iter().chain(kinds).collect();
        (format!("SELECT id, other, {list} FROM ({pairs}){condition}"), columns)
    }

    // ---- set operations ----------------------------------------------------------------------

    pub(super) fn set_operation(&mut self) -> (String, Vec<Kind>) {
        static ALL: [(&str, Kind); 8] = [
            ("id", Kind::Int),
            ("k", Kind::Text),
            ("k", Kind::Text),
            ("g", Kind::Int),
            ("x", Kind::Int),
            ("y", Kind::Double),
            ("MOD(id, 3)", Kind::Int),
            ("x > 0", Kind::Bool),
        ];
        let all: Vec<&(&str, Kind)> = ALL.iter().collect();
        let count = self.random.between(1, 3) as usize;
        let some = self.random.some(&all, count);
        let list = some.iter().enumerate().map(|(i, column)| format!("{} AS c{i}", column.0)).collect::<Vec<_>>().join(", ");
        let mut input = self.updated(2);
        let mut sql = format!("SELECT {list} FROM {}{}", input.table, maybe_where(self.random));
        let more = if self.random.chance(25) { 2 } else { 1 };
        for _ in 0..more {
            let operation = self.random.pick(&["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]);
            input = self.beside(&input, 1);
            sql += &format!(" {operation} SELECT {list} FROM {}{}", input.table, maybe_where(self.random));
        }
        (sql, some.iter().map(|column| column.1).collect())
    }

    // ---- subqueries --------------------------------------------------------------------------

    pub(super) fn subquery(&mut self) -> (String, Vec<Kind>) {
        let outer = self.updated(1);
        let inner = self.beside(&outer, 1);
        let (outer, inner) = (self.part(&outer, 4), self.part(&inner, 4));
        let not = self.random.pick(&["", "NOT "]);
        // What refers to the row outside, by equality alone, and what it may ask besides.
        let keys = self.random.pick(&["r.k = l.k", "r.g = l.g", "r.k = l.k AND r.g = l.g", "r.x = l.x"]);
        let more = self.random.pick(&["", "", " AND r.id <> l.id", " AND r.x > l.x", " AND r.y < 10.0"]);
        let (x, y) =
            *self.random.pick(&[&("k", "k"), &("k", "UPPER(k)"), &("g", "g"), &("x", "x"), &("x / 50", "x / 50"), &("id", "id + 1")]);
        let within = format!("SELECT {y} FROM {inner}{}", maybe_where(self.random));
        let condition = match self.random.between(0, 9) {
            0..=2 => format!("{x} {not}IN ({within})"),
            3 => format!("(g > 0 OR {x} IN ({within}))"),
            4 | 5 => format!("{not}EXISTS (SELECT 1 FROM {inner} AS r WHERE {keys}{more})"),
            6 => format!("{not}EXISTS (SELECT 1 FROM {inner} WHERE {})", truth(self.random, 1)),
            7 => format!("l.x >= (SELECT MAX(r.x) FROM {inner} AS r WHERE {keys})"),
            8 => format!("l.x > (SELECT AVG(x) FROM {inner})"),
            _ => {
                let sql = format!(
                    "SELECT id, (SELECT SUM(r.x) FROM {inner} AS r WHERE {keys}) AS c0, \
                     (SELECT COUNT(*) FROM {inner} AS r WHERE {keys}) AS c1 FROM {outer} AS l"
                );
                return (sql, vec![Kind::Int, Kind::Int, Kind::Int]);
            }
        };
        (format!("SELECT id, k, g, x FROM {outer} AS l WHERE {condition}"), vec![Kind::Int, Kind::Text, Kind::Int, Kind::Int])
    }

    // ---- elements ----------------------------------------------------------------------------

    pub(super) fn elements(&mut self) -> (String, Vec<Kind>) {
        let input = self.updated(2);
        let (array, kind) = *self.random.pick(&[
            &("ARRAY[x, -x]", Kind::Int),
            &("ARRAY[x, id, 7]", Kind::Int),
            &("ARRAY[k, UPPER(k), 'none']", Kind::Text),
            &("ARRAY[y, y + 1.0]", Kind::Double),
            &("CASE WHEN g > 0 THEN ARRAY[x, x + 1] END", Kind::Int),
        ]);
        let condition = maybe_where(self.random);
        let from = format!("(SELECT {ROW}, {array} AS l FROM {}{condition})", input.table);
        match self.random.between(0, 4) {
            0 => {
                let sql = format!("SELECT id, e, n FROM {from} CROSS JOIN UNNEST(l) WITH ORDINALITY AS u (e, n)");
                (sql, vec![Kind::Int, kind, Kind::Int])
            }
            1 => (format!("SELECT id, k, e FROM {from} LEFT JOIN UNNEST(l) AS u (e) ON TRUE"), vec![Kind::Int, Kind::Text, kind]),
            2 => (
                format!("SELECT e, COUNT(*), SUM(x) FROM {from} CROSS JOIN UNNEST(l) AS u (e) GROUP BY e"),
                vec![kind, Kind::Int, Kind::Int],
            ),
            3 => {
                // An array in no certain order, of which only the elements are looked at.
                let table = self.part(&input, 2);
                let sql = format!(
                    "SELECT k, e, COUNT(*) FROM (SELECT k, g, ARRAY_AGG(x) AS l FROM {table} GROUP BY k, g) \
                     CROSS JOIN UNNEST(l) AS u (e) GROUP BY k, e"
                );
                (sql, vec![Kind::Text, Kind::Int, Kind::Int])
            }
            _ => {
                let sql = format!("SELECT id, e FROM {from} CROSS JOIN UNNEST(l) AS u (e) WHERE g > 0");
                (sql, vec![Kind::Int, kind])
            }
        }
    }
}
