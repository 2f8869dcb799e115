//! Sinks that know one row a key, fed by queries whose own key is another one: rows of one key of the sink then come from several places
//! of the query, and what goes away must not take what has come with it, nor stay.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;

use crate::crash::Random;
use crate::harness::{Scratch, finish, text, tidemill};

/// Rows of a table as texts, sorted.
fn rows(file: &str, sql: &str) -> Vec<String> {
    let connection = Connection::open(file).expect("the database");
    let mut statement = connection.prepare(sql).expect(sql);
    let found = statement.query_map([], |row| row.get(0)).expect(sql);
    let mut rows: Vec<String> = found.map(|row| row.expect("a text")).collect();
    rows.sort();
    rows
}

const TABLES: &str = "CREATE TABLE sales (customer STRING, region STRING, amount BIGINT)
    WITH ('connector' = 'filesystem', 'path' = '${PATH}', 'format' = 'csv');
CREATE VIEW totals AS SELECT region, customer, SUM(amount) AS total FROM sales GROUP BY region, customer;
CREATE VIEW ranked AS SELECT * FROM (SELECT region, customer, total,
    ROW_NUMBER() OVER (PARTITION BY region ORDER BY total DESC, customer) AS place FROM totals) WHERE place <= 3;
";

fn sink(name: &str, columns: &str, key: &str) -> String {
    format!(
        "CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:${{DB}}',
         'table-name' = '{name}', 'sink.create-table' = 'true', 'sink.buffer-flush.max-rows' = '7');\n"
    )
}

#[test]
fn each_key_ends_with_the_row_that_it_has_in_the_result() {
    let scratch = Scratch::new("sink-keys");
    let mut random = Random(11);
    let (mut sales, mut totals) = (String::new(), BTreeMap::<(String, String), i64>::new());
    for _ in 0..3000 {
        let customer = format!("c{}", random.below(12));
        // Each is at home in one region.
        let region = format!("r{}", customer.len());
        let amount = random.below(2001) as i64 - 1000;
        sales += &format!("{customer},{region},{amount}\n");
        *totals.entry((region, customer)).or_default() += amount;
    }
    let path = scratch.write("sales.csv", sales);
    let mut best = BTreeSet::new();
    for region in ["r2", "r3"] {
        let mut of: Vec<_> = totals.iter().filter(|((r, _), _)| r == region).map(|((_, c), t)| (-t, c.clone())).collect();
        of.sort();
        best.extend(of.iter().take(3).enumerate().map(|(i, (t, c))| format!("{c} {} {}", -t, i + 1)));
    }
    let sums: BTreeSet<String> = totals.values().map(i64::to_string).collect();
    for parallelism in ["1", "2"] {
        let file = scratch.at(&format!("{parallelism}.db"));
        let job = [
            TABLES,
            &sink("best", "customer STRING, total BIGINT, place BIGINT", "customer"),
            &sink("sums", "total BIGINT, many BIGINT", "total"),
            "INSERT INTO best SELECT customer, total, place FROM ranked;\n",
            "INSERT INTO sums SELECT total, 1 FROM totals;\n",
        ];
        let job = scratch.write("job.sql", format!("SET 'block.size' = '5';\n{}", job.concat()));
        let mut command = tidemill();
        command.args(["run", &job, "--parallelism", parallelism, "--define", &format!("PATH={path}"), "--define", &format!("DB={file}")]);
        let output = finish(&mut command);
        assert!(output.status.success(), "{}", text(&output));
        let found = rows(&file, "SELECT customer || ' ' || total || ' ' || place FROM best");
        assert_eq!(found, best.iter().cloned().collect::<Vec<_>>(), "parallelism {parallelism}");
        let found = rows(&file, "SELECT CAST(total AS TEXT) FROM sums");
        assert_eq!(found, sums.iter().cloned().collect::<Vec<_>>(), "parallelism {parallelism}");
    }
}

/// Runs a job into a database at a parallelism, block by block of one row, so that each change reaches the sink.
fn run(scratch: &Scratch, job: &str, path: &str, parallelism: &str) -> String {
    let file = scratch.at(&format!("{parallelism}.db"));
    let job = scratch.write("job.sql", format!("SET 'block.size' = '1';\n{job}"));
    let mut command = tidemill();
    command.args(["run", &job, "--parallelism", parallelism, "--define", &format!("PATH={path}"), "--define", &format!("DB={file}")]);
    let output = finish(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    file
}

/// Once two customers shared the first place, the sink had the one that was written last. When that one fell, it kept the place
/// besides its new one, and the other was nowhere.
#[test]
fn a_row_that_falls_leaves_its_rank_to_the_one_it_shared_it_with() {
    let scratch = Scratch::new("sink-keys-ties");
    let path = scratch.write("sales.csv", "ann,r,10\nbob,r,10\nbob,r,-5\n");
    for function in ["RANK", "DENSE_RANK"] {
        let query = format!(
            "INSERT INTO places SELECT region, place, customer FROM (SELECT region, customer,
                {function}() OVER (PARTITION BY region ORDER BY total DESC) AS place FROM totals) WHERE place <= 3;\n"
        );
        let job = [TABLES, &sink("places", "region STRING, place BIGINT, customer STRING", "region, place"), &query].concat();
        for parallelism in ["1", "2"] {
            let file = run(&scratch, &job, &path, parallelism);
            let found = rows(&file, "SELECT place || ' ' || customer FROM places");
            assert_eq!(found, ["1 ann", "2 bob"], "{function}, parallelism {parallelism}");
            std::fs::remove_file(file).expect("the database");
        }
    }
}

/// The sink had the smallest of the rows that a key had, and not the newest.
#[test]
fn of_rows_that_stay_the_newest_is_seen() {
    let scratch = Scratch::new("sink-keys-newest");
    let mut random = Random(12);
    let (mut events, mut newest) = (String::new(), BTreeMap::new());
    for _ in 0..300 {
        let (order, status) = (format!("o{}", random.below(20)), format!("s{}", random.below(1000)));
        events += &format!("{order},-,{status}\n");
        newest.insert(order, status);
    }
    newest.insert("all".to_string(), "300".to_string());
    let expect: BTreeSet<String> = newest.iter().map(|(order, status)| format!("{order} {status}")).collect();
    let path = scratch.write("events.csv", events);
    let job = [
        "CREATE TABLE events (id STRING, region STRING, status STRING)
            WITH ('connector' = 'filesystem', 'path' = '${PATH}', 'format' = 'csv');\n",
        &sink("orders", "id STRING, status STRING", "id"),
        // The sum is updated; the events are not, and nothing takes one back.
        "INSERT INTO orders SELECT id, status FROM events UNION ALL
            SELECT 'all', CAST(COUNT(*) AS STRING) FROM events GROUP BY region;\n",
    ];
    for parallelism in ["1", "2"] {
        let file = run(&scratch, &job.concat(), &path, parallelism);
        let found = rows(&file, "SELECT id || ' ' || status FROM orders");
        assert_eq!(found, expect.iter().cloned().collect::<Vec<_>>(), "parallelism {parallelism}");
    }
}

/// Rows are kept only where the keys differ.
#[test]
fn the_key_of_the_query_is_known() {
    let scratch = Scratch::new("sink-keys-known");
    let kept = |columns: &str, key: &str, query: &str, set: &str| {
        let job = format!("{set}{TABLES}{}INSERT INTO s {query};\n", sink("s", columns, key));
        let mut command = tidemill();
        command.args(["explain", &scratch.write("job.sql", job), "--define", "PATH=x.csv", "--define", "DB=x.db"]);
        let output = finish(&mut command);
        assert!(output.status.success(), "{query}: {}", text(&output));
        text(&output).contains("UpsertMaterialize")
    };
    let tied = |columns: &str, function: &str| {
        format!(
            "SELECT {columns} FROM (SELECT region, customer, {function}() OVER (PARTITION BY region ORDER BY total DESC) AS place
             FROM totals) WHERE place <= 3"
        )
    };
    let three = "region STRING, customer STRING, total BIGINT";
    for (columns, key, query, expect) in [
        (three, "region, customer", "SELECT * FROM totals", false),
        (three, "customer, region", "SELECT * FROM totals WHERE total > 0", false),
        (three, "region", "SELECT * FROM totals", true),
        ("n BIGINT, many BIGINT", "many", "SELECT 1, COUNT(*) FROM sales", true),
        ("n BIGINT, many BIGINT", "n", "SELECT 1, COUNT(*) FROM sales", false),
        ("region STRING, place BIGINT, customer STRING", "region, place", "SELECT region, place, customer FROM ranked", false),
        ("region STRING, customer STRING", "region, customer", "SELECT region, customer FROM ranked", false),
        ("region STRING, place BIGINT, customer STRING", "customer", "SELECT region, place, customer FROM ranked", true),
        ("region STRING, place BIGINT, customer STRING", "region, place", tied("region, place, customer", "RANK").as_str(), true),
        ("region STRING, place BIGINT, customer STRING", "region, place", tied("region, place, customer", "DENSE_RANK").as_str(), true),
        ("region STRING, customer STRING", "region, customer", tied("region, customer", "RANK").as_str(), false),
        ("a STRING, b STRING, c BIGINT", "a", "SELECT customer, region, amount FROM sales", false),
    ] {
        assert_eq!(kept(columns, key, query, ""), expect, "{query} by {key}");
    }
    assert!(!kept(three, "region", "SELECT * FROM totals", "SET 'table.exec.sink.upsert-materialize' = 'NONE';\n"));
    assert!(kept(three, "region, customer", "SELECT * FROM totals", "SET 'table.exec.sink.upsert-materialize' = 'FORCE';\n"));
}
