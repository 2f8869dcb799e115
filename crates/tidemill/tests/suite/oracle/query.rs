//! Random queries over `events` and views of it. Here are those whose results only grow, so that a file of rows takes
//! them; those whose results are updated are in the modules below.

mod changing;
mod pairs;

use super::expression::{Kind, aggregate, double, int, maybe_having, maybe_where, of, text, truth};
use super::random::Random;

/// How many queries of a hundred have results that are updated.
const UPDATING_PERCENT: u64 = 55;

/// A query, the views it needs, and the types of its columns.
pub struct Query {
    /// Statements that stand in front, each with its semicolon.
    pub views: Vec<String>,
    pub sql: String,
    pub columns: Vec<Kind>,
    /// The result may be updated: the sink must take changes.
    pub updating: bool,
}

/// Makes queries of one script; the names of views are distinct in it.
pub struct Generator<'a> {
    pub random: &'a mut Random,
    /// Rows may be of the same time: frames of ROWS would have no fixed order.
    pub ties: bool,
    views: Vec<String>,
    names: usize,
}

impl<'a> Generator<'a> {
    pub fn new(random: &'a mut Random, ties: bool) -> Self {
        Generator { random, ties, views: Vec::new(), names: 0 }
    }

    /// The next query.
    pub fn query(&mut self) -> Query {
        let updating = self.random.chance(UPDATING_PERCENT);
        let (sql, columns) = if updating { self.changing() } else { self.growing_only() };
        Query { views: std::mem::take(&mut self.views), sql, columns, updating }
    }

    /// A query whose result only grows.
    fn growing_only(&mut self) -> (String, Vec<Kind>) {
        match self.random.between(0, 99) {
            0..=19 => self.projection(),
            20..=27 => self.distinct(),
            28..=33 => self.union_of_projections(),
            34..=52 => self.windows(),
            53..=57 => self.union_of_windows(),
            58..=62 => self.legacy(),
            63..=67 => self.window_rows(),
            68..=73 => self.session(),
            74..=79 => self.cascade(),
            80..=83 => self.same_windows(),
            84..=95 => self.over(),
            _ => self.over_then_window(),
        }
    }

    fn view(&mut self, query: &str) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        self.views.push(format!("CREATE TEMPORARY VIEW {name} AS {query};"));
        name
    }

    // ---- inputs ------------------------------------------------------------------------------

    /// A query that gives the columns of `events`.
    fn same_columns(&mut self) -> String {
        let k = if self.random.chance(30) { format!("{} AS k", text(self.random, 1)) } else { "k".into() };
        let x = if self.random.chance(30) { format!("{} AS x", int(self.random, 2)) } else { "x".into() };
        format!("SELECT id, {k}, g, {x}, y, t FROM events{}", maybe_where(self.random))
    }

    /// A table with the columns of `events`; with `unions` a row may be in it twice.
    fn input(&mut self, unions: bool) -> String {
        match self.random.between(0, 9) {
            0..=5 => "events".into(),
            6 if unions => {
                let plain = |random: &mut Random| format!("SELECT id, k, g, x, y, t FROM events WHERE {}", truth(random, 1));
                let query = format!("{} UNION ALL {}", plain(self.random), plain(self.random));
                self.view(&query)
            }
            _ => {
                let query = self.same_columns();
                self.view(&query)
            }
        }
    }

    // ---- without time ------------------------------------------------------------------------

    fn projection(&mut self) -> (String, Vec<Kind>) {
        let kinds: Vec<Kind> = (0..self.random.between(1, 4)).map(|_| Kind::any(self.random)).collect();
        let mut columns = vec![Kind::Int];
        columns.extend(&kinds);
        let list = self.list(&kinds);
        let condition = maybe_where(self.random);
        let sql = match self.random.between(0, 3) {
            0 => format!("WITH base AS ({}) SELECT id, {list} FROM base{condition}", self.same_columns()),
            1 => format!("SELECT id, {list} FROM ({}){condition}", self.same_columns()),
            _ => format!("SELECT id, {list} FROM {}{condition}", self.input(true)),
        };
        (sql, columns)
    }

    fn list(&mut self, kinds: &[Kind]) -> String {
        kinds.iter().enumerate().map(|(i, kind)| format!("{} AS c{i}", of(self.random, *kind, 3))).collect::<Vec<_>>().join(", ")
    }

    fn distinct(&mut self) -> (String, Vec<Kind>) {
        let all = [
            ("k", Kind::Text),
            ("UPPER(k)", Kind::Text),
            ("g", Kind::Int),
            ("MOD(x, 4)", Kind::Int),
            ("x / 100", Kind::Int),
            ("y", Kind::Double),
            ("x > 0", Kind::Bool),
        ];
        let all: Vec<&(&str, Kind)> = all.iter().collect();
        let count = self.random.between(1, 3) as usize;
        let some = self.random.some(&all, count);
        let columns = some.iter().map(|c| c.1).collect();
        let from = self.input(true);
        let condition = maybe_where(self.random);
        let list = some.iter().enumerate().map(|(i, c)| format!("{} AS c{i}", c.0)).collect::<Vec<_>>().join(", ");
        if self.random.chance(25) {
            let keys = some.iter().map(|c| c.0).collect::<Vec<_>>().join(", ");
            return (format!("SELECT {list} FROM {from}{condition} GROUP BY {keys}"), columns);
        }
        (format!("SELECT DISTINCT {list} FROM {from}{condition}"), columns)
    }

    fn union_of_projections(&mut self) -> (String, Vec<Kind>) {
        let branch = |generator: &mut Self| {
            let random = &mut *generator.random;
            let list = format!(
                "CAST({} AS BIGINT) AS c0, {} AS c1, CAST({} AS DOUBLE) AS c2, {} AS c3",
                int(random, 2),
                text(random, 2),
                double(random, 2),
                truth(random, 1)
            );
            let condition = maybe_where(random);
            let from = generator.input(true);
            format!("SELECT {list} FROM {from}{condition}")
        };
        let mut sql = branch(self);
        for _ in 0..self.random.between(1, 2) {
            sql += &format!(" UNION ALL {}", branch(self));
        }
        (sql, vec![Kind::Int, Kind::Text, Kind::Double, Kind::Bool])
    }

    // ---- windows -----------------------------------------------------------------------------

    /// `TUMBLE(…)`, `HOP(…)` or `CUMULATE(…)` over a table.
    fn window_function(&mut self, table: &str, time: &str) -> String {
        let part = *self.random.pick(&[&300i64, &1000, &2000, &3000, &7000, &15_000, &60_000]);
        let size = part * self.random.between(1, 5);
        let data = format!("TABLE {table}, DESCRIPTOR({time})");
        match self.random.between(0, 3) {
            0 | 1 => format!("TUMBLE({data}, {})", interval(part)),
            2 => format!("HOP({data}, {}, {})", interval(part), interval(size)),
            _ => format!("CUMULATE({data}, {}, {})", interval(part), interval(size)),
        }
    }

    /// Expressions to group by.
    fn keys(&mut self) -> Vec<(&'static str, Kind)> {
        static ALL: [(&str, Kind); 5] =
            [("k", Kind::Text), ("g", Kind::Int), ("MOD(id, 3)", Kind::Int), ("UPPER(k)", Kind::Text), ("x > 0", Kind::Bool)];
        let all: Vec<&(&str, Kind)> = ALL.iter().collect();
        let count = *self.random.pick(&[&0usize, &1, &1, &1, &2]);
        self.random.some(&all, count).into_iter().copied().collect()
    }

    fn aggregates(&mut self) -> Vec<(String, Kind)> {
        (0..self.random.between(1, 4)).map(|_| aggregate(self.random)).collect()
    }

    /// A window aggregate; which window it is differs from call to call.
    fn grouped(&mut self, keys: &[(&str, Kind)], calls: &[(String, Kind)]) -> (String, Vec<Kind>) {
        let table = self.input(true);
        let function = self.window_function(&table, "t");
        let time = self.random.chance(15);
        let mut items: Vec<String> = vec!["window_start".into(), "window_end".into()];
        let mut columns = vec![Kind::Time, Kind::Time];
        for (i, (key, kind)) in keys.iter().enumerate() {
            items.push(format!("{key} AS k{i}"));
            columns.push(*kind);
        }
        for (i, (call, kind)) in calls.iter().enumerate() {
            items.push(format!("{call} AS a{i}"));
            columns.push(*kind);
        }
        let mut group: Vec<&str> = keys.iter().map(|k| k.0).collect();
        group.extend(["window_start", "window_end"]);
        if time {
            group.push("window_time");
        }
        let condition = maybe_where(self.random);
        let having = maybe_having(self.random);
        let sql = format!("SELECT {} FROM TABLE({function}){condition} GROUP BY {}{having}", items.join(", "), group.join(", "));
        (sql, columns)
    }

    fn windows(&mut self) -> (String, Vec<Kind>) {
        let (keys, calls) = (self.keys(), self.aggregates());
        self.grouped(&keys, &calls)
    }

    fn union_of_windows(&mut self) -> (String, Vec<Kind>) {
        let (keys, calls) = (self.keys(), self.aggregates());
        let (first, columns) = self.grouped(&keys, &calls);
        let (second, _) = self.grouped(&keys, &calls);
        (format!("{first} UNION ALL {second}"), columns)
    }

    /// The older form, `GROUP BY TUMBLE(…)`.
    fn legacy(&mut self) -> (String, Vec<Kind>) {
        let size = interval(*self.random.pick(&[&1000i64, &2500, &10_000]));
        let (call, kind) = aggregate(self.random);
        let from = self.input(false);
        let sql = format!(
            "SELECT k, TUMBLE_START(t, {size}) AS s, {call} AS a0 FROM {from}{} GROUP BY k, TUMBLE(t, {size})",
            maybe_where(self.random)
        );
        (sql, vec![Kind::Text, Kind::Time, kind])
    }

    /// Rows with their windows.
    fn window_rows(&mut self) -> (String, Vec<Kind>) {
        let table = self.input(true);
        let function = self.window_function(&table, "t");
        let sql = format!(
            "SELECT id, window_start, window_end, {} AS c0 FROM TABLE({function}){}",
            double(self.random, 1),
            maybe_where(self.random)
        );
        (sql, vec![Kind::Int, Kind::Time, Kind::Time, Kind::Double])
    }

    fn session(&mut self) -> (String, Vec<Kind>) {
        let table = self.input(true);
        let key = self.random.pick(&["k", "g", "k, g"]);
        let gap = interval(*self.random.pick(&[&50i64, &300, &1000, &1000, &3000]));
        let calls = self.aggregates();
        let list: Vec<String> = calls.iter().enumerate().map(|(i, c)| format!("{} AS a{i}", c.0)).collect();
        let sql = format!(
            "SELECT {key}, window_start, window_end, {} FROM TABLE(SESSION(TABLE {table} PARTITION BY {key}, DESCRIPTOR(t), {gap})) \
             GROUP BY {key}, window_start, window_end",
            list.join(", ")
        );
        let mut columns = match key {
            "k" => vec![Kind::Text],
            "g" => vec![Kind::Int],
            _ => vec![Kind::Text, Kind::Int],
        };
        columns.extend([Kind::Time, Kind::Time]);
        columns.extend(calls.iter().map(|c| c.1));
        (sql, columns)
    }

    /// Windows over the results of windows, by `window_time`.
    fn cascade(&mut self) -> (String, Vec<Kind>) {
        let table = self.input(true);
        let inner = self.window_function(&table, "t");
        let view = format!(
            "SELECT k, g, window_time AS wt, SUM(x) AS total, COUNT(*) AS n, MAX(y) AS high FROM TABLE({inner}){} \
             GROUP BY k, g, window_start, window_end, window_time",
            maybe_where(self.random)
        );
        let view = self.view(&view);
        let outer = self.window_function(&view, "wt");
        let (key, kind) = *self.random.pick(&[&("k", Kind::Text), &("g", Kind::Int)]);
        let sql = format!(
            "SELECT {key}, window_start, window_end, SUM(total), MAX(n), COUNT(*), SUM(high) FROM TABLE({outer}) \
             GROUP BY {key}, window_start, window_end"
        );
        (sql, vec![kind, Kind::Time, Kind::Time, Kind::Int, Kind::Int, Kind::Int, Kind::Double])
    }

    /// A second aggregation in the windows of the first.
    fn same_windows(&mut self) -> (String, Vec<Kind>) {
        let table = self.input(true);
        let inner = self.window_function(&table, "t");
        let condition = maybe_where(self.random);
        let outer_condition = if self.random.chance(40) { " WHERE n > 1" } else { "" };
        let (key, mut columns) = if self.random.chance(50) { ("g, ", vec![Kind::Int]) } else { ("", vec![]) };
        let sql = format!(
            "SELECT {key}window_start, window_end, COUNT(*), MAX(total), SUM(n) FROM (\
             SELECT k, g, window_start, window_end, SUM(x) AS total, COUNT(*) AS n FROM TABLE({inner}){condition} \
             GROUP BY k, g, window_start, window_end){outer_condition} GROUP BY {key}window_start, window_end"
        );
        columns.extend([Kind::Time, Kind::Time, Kind::Int, Kind::Int, Kind::Int]);
        (sql, columns)
    }

    // ---- OVER --------------------------------------------------------------------------------

    fn frame(&mut self) -> String {
        let range = interval(*self.random.pick(&[&0i64, &1, &250, &1000, &5000, &30_000]));
        let last = if self.ties { 3 } else { 6 };
        match self.random.between(0, last) {
            0 | 1 => format!(" RANGE BETWEEN {range} PRECEDING AND CURRENT ROW"),
            2 => " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW".into(),
            3 => String::new(),
            4 | 5 => format!(" ROWS BETWEEN {} PRECEDING AND CURRENT ROW", self.random.between(0, 6)),
            _ => " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW".into(),
        }
    }

    fn over_window(&mut self) -> String {
        let partition = self.random.pick(&["", "PARTITION BY k ", "PARTITION BY k ", "PARTITION BY g ", "PARTITION BY k, g "]);
        format!("{partition}ORDER BY t{}", self.frame())
    }

    fn over_calls(&mut self) -> Vec<(&'static str, Kind)> {
        static ALL: [(&str, Kind); 10] = [
            ("COUNT(*)", Kind::Int),
            ("COUNT(x)", Kind::Int),
            ("COUNT(k)", Kind::Int),
            ("SUM(x)", Kind::Int),
            ("SUM(y)", Kind::Double),
            ("AVG(x)", Kind::Int),
            ("AVG(y)", Kind::Double),
            ("MIN(x)", Kind::Int),
            ("MAX(x)", Kind::Int),
            ("MAX(y)", Kind::Double),
        ];
        let all: Vec<&(&str, Kind)> = ALL.iter().collect();
        let count = self.random.between(1, 4) as usize;
        self.random.some(&all, count).into_iter().copied().collect()
    }

    fn over(&mut self) -> (String, Vec<Kind>) {
        // A row that is there twice would be a tie with itself.
        let from = self.input(self.ties);
        let calls = self.over_calls();
        let mut columns = vec![Kind::Int];
        columns.extend(calls.iter().map(|c| c.1));
        let (first, second) = (self.over_window(), self.over_window());
        let condition = maybe_where(self.random);
        let list = |place: &dyn Fn(usize) -> String| {
            calls.iter().enumerate().map(|(i, c)| format!("{} OVER {} AS c{i}", c.0, place(i))).collect::<Vec<_>>().join(", ")
        };
        let sql = match self.random.between(0, 3) {
            0 => format!("SELECT id, {} FROM {from}{condition}", list(&|_| format!("({first})"))),
            1 => {
                let either = |i: usize| if i.is_multiple_of(2) { "w1".to_string() } else { "w2".to_string() };
                format!("SELECT id, {} FROM {from}{condition} WINDOW w1 AS ({first}), w2 AS ({second})", list(&either))
            }
            2 => format!("SELECT id, {} FROM {from}{condition} WINDOW w AS ({first})", list(&|_| "w".into())),
            _ => {
                // A condition on the results from outside.
                let names = (0..calls.len()).map(|i| format!("c{i}")).collect::<Vec<_>>().join(", ");
                let outer = self.random.pick(&["c0 > 1", "c0 IS NOT NULL AND g > 0", "k = 'a'", "c0 < x", "x > 0 OR c0 < 5"]);
                format!(
                    "SELECT id, {names} FROM (SELECT id, k, g, x, {} FROM {from}{condition} WINDOW w AS ({first})) WHERE {outer}",
                    list(&|_| "w".into())
                )
            }
        };
        (sql, columns)
    }

    fn over_then_window(&mut self) -> (String, Vec<Kind>) {
        let from = self.input(self.ties);
        let over = self.over_window();
        let view = format!("SELECT k, g, t, COUNT(*) OVER ({over}) AS n, SUM(x) OVER ({over}) AS s FROM {from}");
        let view = self.view(&view);
        let function = self.window_function(&view, "t");
        let sql = format!(
            "SELECT g, window_start, window_end, MAX(n), MIN(s), COUNT(*) FROM TABLE({function}) GROUP BY g, window_start, window_end"
        );
        (sql, vec![Kind::Int, Kind::Time, Kind::Time, Kind::Int, Kind::Int, Kind::Int])
    }
}

/// An interval of so many milliseconds.
fn interval(ms: i64) -> String {
    match ms {
        _ if ms > 0 && ms % 60_000 == 0 => format!("INTERVAL '{}' MINUTE", ms / 60_000),
        _ if ms % 1000 == 0 => format!("INTERVAL '{}' SECOND", ms / 1000),
        _ => format!("INTERVAL '{}.{:03}' SECOND", ms / 1000, ms % 1000),
    }
}
