//! What jobs make of directories of files: rows replaced by `INSERT OVERWRITE`, and nothing by what fails; and which rows of files
//! they read.

use std::path::Path;
use std::process::{Command, Output};

use crate::failures::expect;
use crate::harness::{Scratch, finish, root, sink_lines, tidemill};
use crate::not_run::not_run;

/// Runs statements over a table `f` of files in the directory `out`.
fn sql(scratch: &Scratch, statements: &str) -> Output {
    let table = "CREATE TABLE f (a BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' =";
    finish(tidemill().arg("sql").arg(format!("{table} '{}'); {statements}", scratch.at("out"))))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    let mut names: Vec<String> = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn overwrite_replaces_all_rows() {
    let scratch = Scratch::new("overwrite");
    let out = scratch.path().join("out");
    expect(&sql(&scratch, "INSERT INTO f VALUES (1), (2);"), 0, &[]);
    std::fs::write(out.join("more.csv"), "3\n").expect("a file of somebody else's");
    expect(&sql(&scratch, "INSERT OVERWRITE f SELECT a * 10 FROM f;"), 0, &["3 rows written"]);
    assert_eq!(sink_lines(&out), ["10", "20", "30"]);
    // Nothing beside the directory is left.
    assert_eq!(names(scratch.path()), ["out"]);

    // What fails leaves the old rows.
    expect(&sql(&scratch, "INSERT OVERWRITE f SELECT a / (a - 20) FROM f;"), 1, &["division by zero"]);
    assert_eq!(sink_lines(&out), ["10", "20", "30"]);
    expect(&sql(&scratch, "INSERT OVERWRITE f SELECT a FROM f WHERE a < 30; INSERT INTO f SELECT 40;"), 2, &["writes to table 'f' too"]);
    assert_eq!(sink_lines(&out), ["10", "20", "30"]);

    expect(&sql(&scratch, "INSERT OVERWRITE f SELECT * FROM f WHERE FALSE;"), 0, &[]);
    assert_eq!(names(&out), Vec::<String>::new());
}

/// An empty directory stayed, which looks like a table without rows.
#[test]
fn what_fails_leaves_no_directory() {
    let scratch = Scratch::new("no-directory");
    scratch.write("t.csv", "1\n0\n");
    let named = scratch.write("u.csv", "a\n1\n0\n");
    let from = scratch.at("t.csv");
    let run = |mode: &str, insert: &str| {
        let table = |name: &str, path: &str, more: &str| {
            format!("CREATE TABLE {name} (a BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}'{more});")
        };
        let tables = [
            table("t", &from, ""),
            table("f", &scratch.at("new/f"), ""),
            table("one", &scratch.at("new/one.csv"), ", 'sink.single-file' = 'true'"),
            table("below", &scratch.at("t.csv/below"), ""),
            format!(
                "CREATE TABLE p (a BIGINT, b BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{}', \
                 'sink.partition-by' = 'b');",
                scratch.at("new/p")
            ),
        ];
        let job = scratch.write("job.sql", format!("SET 'execution.runtime-mode' = '{mode}';\n{}\n{insert}", tables.join("\n")));
        finish(tidemill().args(["run", &job, "--quiet"]))
    };
    for mode in ["batch", "streaming"] {
        for insert in [
            "INSERT INTO f SELECT 1 / a FROM t;",
            "INSERT INTO one SELECT 1 / a FROM t;",
            "INSERT INTO p SELECT 1 / a, a FROM t;",
            "INSERT INTO f SELECT a FROM t; INSERT INTO f SELECT 1 / a FROM t;",
        ] {
            expect(&run(mode, insert), 1, &["division by zero"]);
            assert_eq!(names(scratch.path()), ["job.sql", "t.csv", "u.csv"], "{mode}: {insert}");
        }
        // The first table is opened, the second cannot be.
        expect(&run(mode, "INSERT INTO f SELECT a FROM t; INSERT INTO below SELECT a FROM t;"), 1, &["t.csv/below"]);
        assert_eq!(names(scratch.path()), ["job.sql", "t.csv", "u.csv"], "{mode}");
    }
    for to in ["new/out.csv", "new/out"] {
        let copy = format!("COPY (SELECT 1 / a AS x FROM '{named}') TO '{}' (FORMAT csv)", scratch.at(to));
        expect(&finish(tidemill().args(["sql", &copy])), 1, &["division by zero"]);
        assert_eq!(names(scratch.path()), ["job.sql", "t.csv", "u.csv"], "{to}");
    }
    // What was there before stays, empty as it is; and no rows are a table, too.
    std::fs::create_dir(scratch.path().join("new")).expect("a directory");
    expect(&run("batch", "INSERT INTO f SELECT 1 / a FROM t;"), 1, &["division by zero"]);
    assert_eq!(names(scratch.path()), ["job.sql", "new", "t.csv", "u.csv"]);
    expect(&run("batch", "INSERT INTO f SELECT a FROM t WHERE a > 1;"), 0, &[]);
    assert_eq!(names(&scratch.path().join("new")), ["f"]);
}

#[test]
fn overwrite_follows_a_link() {
    let scratch = Scratch::new("overwrite-link");
    std::fs::create_dir(scratch.path().join("there")).expect("a directory");
    std::os::unix::fs::symlink(scratch.path().join("there"), scratch.path().join("out")).expect("a link");
    expect(&sql(&scratch, "INSERT INTO f VALUES (1);"), 0, &[]);
    expect(&sql(&scratch, "INSERT OVERWRITE f VALUES (2);"), 0, &[]);
    assert!(scratch.path().join("out").is_symlink());
    assert_eq!(sink_lines(&scratch.path().join("there")), ["2"]);
}

#[test]
fn overwrite_where_it_cannot_be() {
    let scratch = Scratch::new("overwrite-refused");
    let print = "CREATE TABLE p (a BIGINT) WITH ('connector' = 'print'); INSERT OVERWRITE p VALUES (1);";
    expect(&sql(&scratch, print), 2, &["connector 'print' cannot replace", "INSERT INTO"]);
    let job = scratch.write(
        "job.sql",
        "CREATE TABLE t (a BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
         CREATE TABLE f (a BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'nowhere');
         INSERT OVERWRITE f SELECT a FROM t;",
    );
    expect(
        &finish(tidemill().args(["run", &job])),
        2,
        &["INSERT OVERWRITE needs batch mode", "SET 'execution.runtime-mode'", "job.sql:3:"],
    );
}

/// A file is called by its own name, without folders and endings, where nothing else is; and texts of Parquet may be parts of rows.
#[test]
fn files_have_short_names() {
    let scratch = Scratch::new("short-names");
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    let csv = scratch.write("in/trades.csv", "symbol,price\nA,1\nB,2\nC,3\n");
    let parquet = scratch.at("in/trades.parquet");
    expect(&finish(tidemill().args(["sql", &format!("COPY (SELECT * FROM '{csv}') TO '{parquet}'")])), 0, &[]);
    let timed = scratch.write("timed.csv", "X,2026-01-01 00:00:01\n");
    std::fs::create_dir(scratch.path().join("rows")).expect("a directory");
    let rows = scratch.write("rows/trades.json", "{\"trades\": {\"price\": 7}}\n");
    let table = format!(
        "SET 'execution.runtime-mode' = 'batch';
         CREATE TABLE trades (name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
         WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{timed}');"
    );
    for path in [&csv, &parquet] {
        for (query, rows) in [
            (format!("SELECT trades.price FROM '{path}' WHERE trades.symbol = 'B'"), "price\n2\n"),
            // The column that the star brings has its name, the one beside it another.
            (format!("SELECT *, trades.price FROM '{path}' WHERE price > 2"), "symbol,price,price0\nC,3,3\n"),
            // A table that is called so keeps its name, whether it stands in FROM or is given to a window.
            (format!("{table} SELECT trades.name, price FROM trades, '{path}' WHERE price = 1"), "name,price\nX,1\n"),
            (
                format!(
                    "{table} SELECT trades.name, price FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE)), '{path}' \
                     WHERE price = 3"
                ),
                "name,price\nX,3\n",
            ),
            // A field of a ROW that is called as its file has its own name.
            (format!("SELECT trades.price FROM '{rows}'"), "price\n7\n"),
        ] {
            let done = finish(tidemill().args(["sql", &query, "--output", "csv"]));
            expect(&done, 0, &[]);
            assert_eq!(String::from_utf8_lossy(&done.stdout), rows, "{query}");
        }
        let query = format!("SELECT ROW(symbol, price) AS pair FROM '{path}' WHERE symbol <> 'A' AND price < 3");
        let done = finish(tidemill().args(["sql", &query, "--output", "json"]));
        expect(&done, 0, &[]);
        assert_eq!(String::from_utf8_lossy(&done.stdout).trim_end(), r#"{"pair":{"f0":"B","f1":2}}"#);
    }
}

/// A tar of text files.
fn tar(members: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in members {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(124, &format!("{:011o}", content.len()));
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\u{0}00");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(header);
        out.extend(content.as_bytes());
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// Members of archives are tables like other files: in queries, in batch jobs and in streams.
#[test]
fn members_of_archives_are_read() {
    let scratch = Scratch::new("archives");
    let content = |from: usize| format!("id,name\n{}", (from..from + 1000).map(|n| format!("{n},n{n}\n")).collect::<String>());
    let (one, two) = (content(0), content(1000));
    std::fs::write(scratch.path().join("x.tar"), tar(&[("a/one.csv", &one), ("a/two.csv", &two), ("notes.md", "nothing\n")]))
        .expect("a tar");
    let path = scratch.at("x.tar//a/*.csv");
    for output in ["COUNT(*) AS n", "COUNT(id) AS n"] {
        let query = format!("SELECT {output} FROM '{path}'");
        let done = finish(tidemill().args(["sql", &query, "--output", "csv"]));
        expect(&done, 0, &[]);
        assert_eq!(String::from_utf8_lossy(&done.stdout), "n\n2000\n", "{query}");
    }
    for mode in ["batch", "streaming"] {
        let out = scratch.at(mode);
        let job = scratch.write(
            "job.sql",
            format!(
                "SET 'execution.runtime-mode' = '{mode}';
                 CREATE TABLE t (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'format' = 'csv', 'csv.header' = 'true',
                   'path' = '{path}');
                 CREATE TABLE s (id BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}');
                 INSERT INTO s SELECT id FROM t WHERE name = 'n1500' OR id = 1;"
            ),
        );
        expect(&finish(tidemill().args(["run", &job])), 0, &["read: "]);
        assert_eq!(sink_lines(Path::new(&out)), ["1", "1500"], "{mode}");
    }
}

/// An archive that comes through a pipe is unpacked while it arrives.
#[test]
fn an_archive_comes_through_a_pipe() {
    let scratch = Scratch::new("piped");
    let lines = (0..5000).map(|n| format!("{n}\n")).collect::<String>();
    let input = scratch.path().join("input");
    std::fs::write(&input, tar(&[("a/one.csv", &lines), ("a/two.csv", "7\n"), ("b.csv", "k,v\n9,8\n")])).expect("a tar");
    for mode in ["batch", "streaming"] {
        let out = scratch.at(mode);
        let job = scratch.write(
            "job.sql",
            format!(
                "SET 'execution.runtime-mode' = '{mode}';
                 CREATE TABLE t (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '/dev/stdin//a/*.csv',
                   'source.archive' = 'tar.gz');
                 CREATE TABLE s (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}');
                 INSERT INTO s SELECT n FROM t WHERE n = 7 OR n > 4997;"
            ),
        );
        let piped = format!("gzip -c '{}' | '{}' run '{job}' --quiet", input.display(), env!("CARGO_BIN_EXE_tidemill"));
        expect(&finish(Command::new("sh").arg("-c").arg(piped)), 0, &[]);
        assert_eq!(sink_lines(Path::new(&out)), ["4998", "4999", "7", "7"], "{mode}");
    }
    // A query looks into it first, and at the member that is chosen, not at the first.
    let query = format!("SELECT k + v AS n FROM read_csv('{}//b.csv', 'source.archive' = 'tar')", input.display());
    let done = finish(tidemill().args(["sql", &query, "--output", "csv"]));
    expect(&done, 0, &[]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "n\n17\n");
}

/// Runs a shell script in which `"$@"` is the command line with these arguments.
fn shell(script: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.env("NO_COLOR", "1").args(["-c", script, "sh", env!("CARGO_BIN_EXE_tidemill")]).args(arguments);
    finish(&mut command)
}

/// Of a pipe the first megabyte was taken to find the columns, and the query saw what came behind it: of a short one nothing.
#[test]
fn a_query_reads_a_pipe_from_its_first_row() {
    let scratch = Scratch::new("pipe");
    let lines = |to: usize| format!("n\n{}", (1..=to).map(|n| format!("{n}\n")).collect::<String>());
    std::fs::write(scratch.path().join("x.tar"), tar(&[("a.md", "none"), ("b.csv", &lines(300_000))])).expect("a tar");
    let (archive, fifo) = (scratch.at("x.tar"), scratch.at("fifo.csv.gz"));
    let json = r#"seq 1 300000 | sed 's/.*/{"n":&}/' | "$@""#;
    // A line of 78 MB, which is more than a line may have.
    let line = r#"seq -f '{"n":%.0f,"p":"'$(printf %0240d 0)'"},' 1 300000 | tr -d '\n' | sed 's/^/[/; s/,$/]/' | "$@""#;
    // Of a first object that is longer than the sample the whole line tells the columns.
    let long = r#"printf '{"a":"%02097152d","n":1}\n{"n":2}\n{"n":3}\n' 0 | "$@""#;
    let few = (3, 6);
    let many = (300_000, 45_000_150_000u64);
    for (script, from, (count, sum)) in [
        ("(echo n; seq 1 3) | \"$@\"", "'/dev/stdin'", few),
        ("(echo n; seq 1 300000) | \"$@\"", "'/dev/stdin'", many),
        // The columns are found while the writer still has more to say, and says nothing.
        ("(echo n; seq 1 200000; sleep 0.3; seq 200001 300000) | \"$@\"", "'/dev/fd/0'", many),
        (json, "'/dev/stdin'", many),
        (line, "'/dev/stdin'", many),
        (long, "'/dev/stdin'", few),
        ("(echo n; seq 1 3) | gzip | \"$@\"", "read_csv('/dev/stdin', compression = 'gzip')", few),
        ("(echo n; seq 1 300000) | gzip | \"$@\"", "read_csv('/dev/stdin', compression = 'gzip')", many),
        (format!("cat '{archive}' | \"$@\"").as_str(), "read_csv('/dev/stdin//*.csv', 'source.archive' = 'tar')", many),
        (format!("mkfifo '{fifo}'; (echo n; seq 1 300000) | gzip > '{fifo}' & \"$@\"").as_str(), format!("'{fifo}'").as_str(), many),
    ] {
        let query = format!("SELECT COUNT(*) AS c, SUM(n) AS s FROM {from}");
        let done = shell(script, &["sql", &query, "--output", "csv"]);
        expect(&done, 0, &[]);
        assert_eq!(String::from_utf8_lossy(&done.stdout), format!("c,s\n{count},{sum}\n"), "{script}");
    }
    let described = shell("(echo n; seq 1 3) | \"$@\"", &["describe", "/dev/stdin"]);
    expect(&described, 0, &[]);
    assert!(String::from_utf8_lossy(&described.stdout).contains("3 rows"), "{described:?}");
}

#[test]
fn a_pipe_is_copied() {
    let scratch = Scratch::new("pipe-copy");
    for (number, lines, sum) in [(0, 3u64, 6u64), (1, 300_000, 45_000_150_000)] {
        let out = scratch.at(&format!("out-{number}.parquet"));
        expect(&shell(&format!("(echo n; seq 1 {lines}) | \"$@\""), &["copy", "/dev/stdin", &out]), 0, &["on both sides"]);
        let query = format!("SELECT COUNT(*) AS c, SUM(n) AS s FROM '{out}'");
        let done = finish(tidemill().args(["sql", &query, "--output", "csv"]));
        assert_eq!(String::from_utf8_lossy(&done.stdout), format!("c,s\n{lines},{sum}\n"));
    }
}

#[test]
fn what_a_pipe_cannot_give_is_said() {
    let scratch = Scratch::new("pipe-refused");
    let parquet = scratch.at("t.parquet");
    let copy = format!("COPY (SELECT 1 AS n) TO '{parquet}'");
    expect(&finish(tidemill().args(["sql", &copy])), 0, &[]);
    let cat = format!("cat '{parquet}' | \"$@\"");
    let declared = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '/dev/stdin'); \
                    SELECT * FROM t;";
    // Which of two tables got what, or waited for ever, was a matter of time.
    let fifo = scratch.at("fifo");
    let table =
        |name: &str| format!("CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{fifo}');");
    let two = format!("{}{} SELECT n FROM a UNION ALL SELECT n FROM b;", table("a"), table("b"));
    let two_streaming = format!("SET 'execution.runtime-mode' = 'streaming'; {two}");
    // So it was where one is looked up: in batch mode the other mode was advised.
    let both_ways = format!(
        "CREATE TABLE c (n BIGINT, pt AS PROCTIME()) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{fifo}');{}
         SELECT c.n FROM c JOIN a FOR SYSTEM_TIME AS OF c.pt ON a.n = c.n;",
        table("a")
    );
    let looked_up = ["batch", "streaming"].map(|mode| format!("SET 'execution.runtime-mode' = '{mode}'; {both_ways}"));
    let found_and_declared = format!("{} SELECT n FROM '{fifo}' UNION ALL SELECT n FROM a;", table("a"));
    let make = format!("mkfifo '{fifo}'; \"$@\"");
    let write = format!("(echo n; seq 1 3) > '{fifo}' & \"$@\"");
    for (script, query, code, parts) in [
        (make.as_str(), two.as_str(), 1, ["is a pipe", "is read a second time"]),
        ("\"$@\"", two_streaming.as_str(), 1, ["is a pipe", "is read a second time"]),
        ("\"$@\"", looked_up[0].as_str(), 1, ["is a pipe", "is read a second time"]),
        ("\"$@\"", looked_up[1].as_str(), 1, ["is a pipe", "is read a second time"]),
        (write.as_str(), found_and_declared.as_str(), 1, ["is a pipe", "is read a second time"]),
        (cat.as_str(), "SELECT * FROM '/dev/stdin'", 2, ["is a Parquet file", "into a file first"]),
        (cat.as_str(), "SELECT * FROM read_parquet('/dev/stdin')", 2, ["'/dev/stdin' is no regular file", "into a file first"]),
        (cat.as_str(), declared, 1, ["'/dev/stdin' is no regular file", "into a file first"]),
        ("seq 1 3 | gzip | \"$@\"", "SELECT * FROM '/dev/stdin'", 2, ["'/dev/stdin'", "compression = 'gzip'"]),
        ("true | \"$@\"", "SELECT * FROM '/dev/stdin'", 2, ["'/dev/stdin'", "nothing comes through the pipe"]),
        // All of it is there, and its bytes are what is wrong, not its lines.
        (r#"printf '{"a":1' | "$@""#, "SELECT * FROM '/dev/stdin'", 2, ["'/dev/stdin'", "cannot tell the columns"]),
        (r#"printf '{"a":\377' | "$@""#, "SELECT * FROM '/dev/stdin'", 2, ["'/dev/stdin'", "cannot tell the columns"]),
        (
            "seq 1 3 | \"$@\"",
            "SELECT COUNT(*) FROM '/dev/stdin' UNION ALL SELECT COUNT(*) FROM '/dev/stdin'",
            1,
            ["'/dev/stdin' is a pipe", "is read a second time"],
        ),
    ] {
        expect(&shell(script, &["sql", query]), code, &parts);
    }
}

/// That objects stand in an array, or over several lines, is found by looking.
#[test]
fn json_documents_are_found() {
    let scratch = Scratch::new("json-documents");
    for (name, text) in [
        ("array.json", "[{\"n\":1},{\"n\":2},\n{\"n\":3}]"),
        ("objects.json", "{\n  \"n\": 1\n}\n{\n  \"n\": 5\n}\n"),
        ("unnamed", "[\n  {\n    \"n\": 6\n  }\n]\n"),
        ("lines.json", "{\"n\":2}\n\n{\"n\":4}\n"),
    ] {
        let path = scratch.write(name, text);
        let query = |from: &str| format!("SELECT SUM(n) AS s FROM '{from}'");
        let piped = format!("cat '{path}' | \"$@\"");
        for done in [
            finish(tidemill().args(["sql", &query(&path), "--output", "csv"])),
            shell(&piped, &["sql", &query("/dev/stdin"), "--output", "csv"]),
        ] {
            expect(&done, 0, &[]);
            assert_eq!(String::from_utf8_lossy(&done.stdout), "s\n6\n", "{name}");
        }
    }
    // A document is read by one reader, however large it is.
    let objects = (0..300_000).map(|n| format!("{{\"n\": {n},\n \"s\": \"}}{n}\"}}")).collect::<Vec<_>>().join(",\n");
    let input = scratch.write("large.json", format!("[{objects}]"));
    let table = |form: &str| format!("(n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{input}'{form})");
    for form in [", 'json.form' = 'document'", ", 'json.form' = 'auto'"] {
        let (rows, done) = by_four(&scratch, &table(form), "SELECT COUNT(*), SUM(n) FROM t");
        expect(&done, 0, &[]);
        assert_eq!(rows, ["300000,44999850000"], "{form}");
    }
    // Without the option a declared table has an object a line, as ever.
    let (_, done) = by_four(&scratch, &table(""), "SELECT COUNT(*), SUM(n) FROM t");
    expect(&done, 1, &["large.json", "not a JSON object"]);
    let bad = scratch.write("bad.json", "[{\"n\":1},{\"n\":\"x\"}]");
    let query = format!(
        "CREATE TABLE t (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{bad}', 'json.form' = 'document'); \
         SELECT * FROM t;"
    );
    expect(&finish(tidemill().args(["sql", &query])), 1, &["bad.json, record 2 (byte 9)", "\"x\" is not a BIGINT"]);
    let cut = scratch.write("cut.json", "[{\"n\":1},\n");
    expect(&finish(tidemill().args(["sql", &format!("SELECT * FROM '{cut}'")])), 1, &["cut.json", "the array is not closed at byte 10"]);
}

/// Of a SAS7BDAT file a batch job reads only the rows that it wants.
#[test]
fn rows_of_sas_files_are_chosen_while_they_are_read() {
    let data = root().join("../shared/data/sas/pandas");
    let Ok(all) = std::fs::read_to_string(data.join("productsales.csv")) else {
        return not_run(&format!("rows of SAS files are chosen ({} is missing)", data.display()));
    };
    let mut expected = Vec::new();
    for line in all.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let actual: u32 = fields[0].parse().expect("a whole number");
        if actual > 900 && fields[2] != "CANADA" {
            expected.push(format!("{},{actual}", fields[6]));
        }
    }
    expected.sort();
    let scratch = Scratch::new("sas-rows");
    let (out, summary) = (scratch.at("out"), scratch.at("summary.json"));
    let job = scratch.write(
        "job.sql",
        format!(
            "SET 'execution.runtime-mode' = 'batch';
             CREATE TABLE t (actual DOUBLE, country STRING, product STRING) WITH ('connector' = 'filesystem', 'format' = 'sas7bdat',
               'path' = '{}');
             CREATE TABLE s (product STRING, actual BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}');
             INSERT INTO s SELECT product, CAST(actual AS BIGINT) FROM t WHERE actual > 900 AND country <> 'CANADA';",
            data.join("productsales.sas7bdat").display()
        ),
    );
    expect(&finish(tidemill().args(["run", &job, "--quiet", "--metrics", &summary])), 0, &[]);
    assert_eq!(sink_lines(Path::new(&out)), expected);
    let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(&summary).expect("the summary")).expect("JSON");
    assert_eq!(summary["rows_in"].as_u64(), Some(expected.len() as u64), "rows that nobody wants came out of the reader");
}

/// Of a Parquet file a batch job reads only the row groups that may have rows that it wants.
#[test]
fn row_groups_are_left_out_by_their_least_and_greatest_values() {
    let scratch = Scratch::new("row-groups");
    let lines = (0..1000).map(|n| format!("{n},{},{}\n", n % 7, n as f64 / 2.0)).collect::<String>();
    let (input, parquet) = (scratch.write("t.csv", format!("n,m,x\n{lines}")), scratch.at("t.parquet"));
    let copy = format!("COPY (SELECT * FROM '{input}' ORDER BY n) TO '{parquet}' (FORMAT parquet, ROW_GROUP_SIZE 100)");
    expect(&finish(tidemill().args(["sql", &copy])), 0, &["1000 rows written"]);
    // Conditions, rows that are wanted, rows of the row groups in which there may be some.
    for (condition, wanted, read) in [
        ("n >= 950", 50, 100),
        ("n BETWEEN 199 AND 200 AND m < 9", 2, 200),
        ("n = 5 OR n > 995", 5, 200),
        ("n IN (1, 2, 401)", 3, 200),
        ("n < 0", 0, 0),
        ("m > 9", 0, 0),
        ("m = 3", 143, 1000),
        // A NaN would be greater than all numbers, and stands in no statistics.
        ("x > 498", 3, 1000),
        ("n % 100 = 0", 10, 1000),
    ] {
        let (out, summary) = (scratch.at("out"), scratch.at("summary.json"));
        let job = scratch.write(
            "job.sql",
            format!(
                "SET 'execution.runtime-mode' = 'batch';
                 CREATE TABLE t (n BIGINT, m BIGINT, x DOUBLE) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{parquet}');
                 CREATE TABLE s (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}');
                 INSERT OVERWRITE s SELECT n FROM t WHERE {condition};"
            ),
        );
        expect(&finish(tidemill().args(["run", &job, "--quiet", "--metrics", &summary])), 0, &[]);
        assert_eq!(sink_lines(Path::new(&out)).len(), wanted, "{condition}");
        let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(&summary).expect("the summary")).expect("JSON");
        assert_eq!(summary["rows_in"].as_u64(), Some(read), "{condition}");
    }
}

/// Where values stand in no order, row groups are left out by Bloom filters, if they were written.
#[test]
fn row_groups_are_left_out_by_their_filters() {
    let scratch = Scratch::new("filters");
    let lines = (0..1000).map(|n| format!("{n},{},s{}\n", n * 7919 % 1000, n * 7919 % 1000)).collect::<String>();
    let (input, out, summary) = (scratch.write("t.csv", lines), scratch.at("out"), scratch.at("summary.json"));
    let columns = "(n BIGINT, m BIGINT, s STRING)";
    let run = |statements: &str| {
        let job = scratch.write("job.sql", format!("SET 'execution.runtime-mode' = 'batch';\n{statements}"));
        finish(tidemill().args(["run", &job, "--quiet", "--metrics", &summary]))
    };
    let write = |name: &str, filters: &str| {
        let path = scratch.at(name);
        let sink = format!(
            "CREATE TABLE t {columns} WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{input}');
             CREATE TABLE f {columns} WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{path}', 'sink.single-file' = 'true',
               'parquet.row-group.rows' = '100'{filters});
             INSERT INTO f SELECT * FROM t ORDER BY n;"
        );
        (path, run(&sink))
    };
    let (plain, done) = write("plain.parquet", "");
    expect(&done, 0, &[]);
    let (filtered, done) = write("filtered.parquet", ", 'parquet.bloom-filter-columns' = 'm, s'");
    expect(&done, 0, &[]);
    let (_, done) = write("wrong.parquet", ", 'parquet.bloom-filter-columns' = 'm, k'");
    expect(&done, 2, &["table 'f': option 'parquet.bloom-filter-columns': the files have no column 'k'; they have: n, m, s"]);
    // Conditions, rows that are wanted, and the most row groups that are read for them: filters may take some for others.
    for (condition, wanted, groups) in [
        ("m = 123", 1, 3),
        ("s = 's123'", 1, 3),
        ("m IN (1, 2)", 2, 5),
        ("m = 123 AND s = 's124'", 0, 2),
        ("m = 123 OR s = 's123'", 1, 10),
        ("m = 5000", 0, 0),
        ("s = 's12345' AND n >= 0", 0, 3),
        ("m <> 123", 999, 10),
        ("s IN ('s1', 's2') OR s IS NULL", 2, 10),
    ] {
        for (path, groups) in [(&plain, 10), (&filtered, groups)] {
            let done = run(&format!(
                "CREATE TABLE f {columns} WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{path}');
                 CREATE TABLE r (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}');
                 INSERT OVERWRITE r SELECT n FROM f WHERE {condition};"
            ));
            expect(&done, 0, &[]);
            assert_eq!(sink_lines(Path::new(&out)).len(), wanted, "{condition} of {path}");
            let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(&summary).expect("the summary")).expect("JSON");
            let read = summary["rows_in"].as_u64().expect("rows");
            assert!(read <= groups * 100, "{condition} of {path}: {read} rows were read");
        }
    }
}

/// Of a row group that has something wanted, only the pages that may have it: rows of others do not come out of the reader.
#[test]
fn pages_are_left_out_by_their_least_and_greatest_values() {
    let scratch = Scratch::new("pages");
    let lines = (0..100_000).map(|n| format!("{n},{}\n", n % 7)).collect::<String>();
    let (input, parquet) = (scratch.write("t.csv", format!("n,m\n{lines}")), scratch.at("t.parquet"));
    let copy = format!("COPY (SELECT * FROM '{input}' ORDER BY n) TO '{parquet}' (FORMAT parquet)");
    expect(&finish(tidemill().args(["sql", &copy])), 0, &["100000 rows written"]);
    // Conditions, the sum of what they want, and the most rows that are read for them: a page has some 20,000.
    for (condition, sum, most) in [
        ("n = 50000", 50_000, 25_000),
        ("n IN (5, 99999)", 100_004, 50_000),
        ("n BETWEEN 40000 AND 40009 AND m < 9", 400_045, 50_000),
        ("n > 99990 OR n < 3", 899_958, 50_000),
        ("m = 8", 0, 0),
        ("m = 3 AND n < 7", 3, 25_000),
    ] {
        let summary = scratch.at("summary.json");
        for parallelism in ["1", "3"] {
            let out = scratch.at("out");
            let job = scratch.write(
                "job.sql",
                format!(
                    "SET 'execution.runtime-mode' = 'batch';
                     CREATE TABLE t (n BIGINT, m BIGINT) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{parquet}');
                     CREATE TABLE s (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}');
                     INSERT OVERWRITE s SELECT n FROM t WHERE {condition};"
                ),
            );
            let run = ["run", &job, "--quiet", "--metrics", &summary, "--parallelism", parallelism];
            expect(&finish(tidemill().args(run)), 0, &[]);
            let all = sink_lines(Path::new(&out));
            assert_eq!(all.iter().map(|n| n.parse::<u64>().expect("a number")).sum::<u64>(), sum, "{condition}");
            let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(&summary).expect("the summary")).expect("JSON");
            let read = summary["rows_in"].as_u64().expect("rows");
            assert!(read <= most, "{condition}: {read} rows were read");
        }
    }
}

/// Of a table divided by directories a batch job opens only the files that by their names may have rows that it wants.
#[test]
fn files_are_left_out_by_what_their_names_say() {
    let scratch = Scratch::new("left-out");
    let (input, out, summary) = (scratch.at("in"), scratch.at("out"), scratch.at("summary.json"));
    for (directory, from) in
        [("year=2023/kind=a", 0), ("year=2023/kind=b", 10), ("year=2024/kind=a", 20), ("year=__HIVE_DEFAULT_PARTITION__/kind=a", 30)]
    {
        let directory = Path::new(&input).join(directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let lines: String = (from..from + 10).map(|n| format!("{n}\n")).collect();
        std::fs::write(directory.join("t.csv"), lines).expect("a file");
    }
    // Conditions, rows that are wanted, rows of the files in which there may be some, and how many files there are without any.
    for (condition, wanted, read, left_out) in [
        ("year = 2024", 10, 10, 3),
        ("year IN (2024, 2025)", 10, 10, 3),
        ("year >= 2023 AND kind = 'a'", 20, 20, 2),
        ("year BETWEEN 2000 AND 2023", 20, 20, 2),
        ("year < 2023", 0, 0, 4),
        ("year <> 2024", 20, 20, 2),
        ("NOT (year = 2024 AND kind = 'a')", 20, 20, 2),
        ("year IS NULL", 10, 10, 3),
        ("year IS DISTINCT FROM 2024", 30, 30, 1),
        ("kind LIKE 'b%' OR year > 2023", 20, 20, 2),
        ("file LIKE '%/kind=b/t.csv'", 10, 10, 3),
        ("year IS NOT NULL AND n >= 15", 15, 30, 1),
        // A row may be wanted for what stands in the file.
        ("year = 2024 OR n = 5", 11, 40, 0),
        ("year + n = 2044", 1, 40, 0),
    ] {
        let job = scratch.write(
            "job.sql",
            format!(
                "SET 'execution.runtime-mode' = 'batch';
                 CREATE TABLE t (n BIGINT, year BIGINT METADATA FROM 'partition.year' VIRTUAL, kind STRING METADATA FROM 'partition.kind' VIRTUAL,
                   file STRING METADATA FROM 'file.path' VIRTUAL) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{input}');
                 CREATE TABLE s (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}');
                 INSERT OVERWRITE s SELECT n FROM t WHERE {condition};"
            ),
        );
        expect(&finish(tidemill().args(["run", &job, "--quiet", "--metrics", &summary])), 0, &[]);
        assert_eq!(sink_lines(Path::new(&out)).len(), wanted, "{condition}");
        let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(&summary).expect("the summary")).expect("JSON");
        let source = &summary["nodes"][0];
        assert_eq!((source["name"].as_str(), source["rows"].as_u64()), (Some("Source t"), Some(read)), "{condition}");
        assert_eq!(source["files_left_out"].as_u64().unwrap_or(0), left_out, "{condition}");
    }
}

/// Runs a query over a table read by four at once; its rows, and what was said.
fn by_four(scratch: &Scratch, table: &str, query: &str) -> (Vec<String>, Output) {
    let out = scratch.at("out");
    let job = scratch.write(
        "job.sql",
        format!(
            "SET 'execution.runtime-mode' = 'batch';
             CREATE TABLE t {table};
             CREATE TABLE s WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{out}') AS {query};"
        ),
    );
    let _ = std::fs::remove_dir_all(&out);
    let done = finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "4"]));
    (if Path::new(&out).exists() { sink_lines(Path::new(&out)) } else { Vec::new() }, done)
}

/// A CSV file that is too large for all of its quotes to be counted before it is read.
#[test]
fn a_large_csv_file_is_cut_by_the_quotes_near_each_cut() {
    const ROWS: u64 = 500_000;
    let scratch = Scratch::new("large-csv");
    let table =
        |path: &str| format!("(n BIGINT, x STRING, m BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}')");
    let text = |field: &dyn Fn(u64) -> String| (0..ROWS).map(|n| format!("{n},{},{}\n", field(n), n % 10)).collect::<String>();
    let query = "SELECT COUNT(*), SUM(n), SUM(m), SUM(CHAR_LENGTH(x)) FROM t";
    let sum = ROWS * (ROWS - 1) / 2;
    let (plain, long) = ("x".repeat(80), "y".repeat(40));

    // Lines end in the quotes of every third row, and look like rows there.
    let quoted = |n: u64| if n.is_multiple_of(3) { format!("\"{long}\n7,\"\"{long}\"\",7\n\"") } else { format!("{plain}{plain}") };
    let input = scratch.write("quoted.csv", text(&quoted));
    assert!(std::fs::metadata(&input).expect("the file").len() > 64 << 20, "all quotes of a smaller file are counted");
    let (rows, done) = by_four(&scratch, &table(&input), query);
    expect(&done, 0, &[]);
    let thirds = ROWS.div_ceil(3);
    let letters = thirds * 88 + (ROWS - thirds) * 160;
    assert_eq!(rows, [format!("{ROWS},{sum},{},{letters}", ROWS / 10 * 45)]);
    let (rows, done) = by_four(&scratch, &table(&input), "SELECT COUNT(*) FROM t");
    expect(&done, 0, &[]);
    assert_eq!(rows, [ROWS.to_string()]);

    // A quote that is never closed, of which the cuts know nothing.
    let open = |n: u64| if n == ROWS / 2 { format!("\"{plain}") } else { format!("{plain}{plain}") };
    let input = scratch.write("open.csv", text(&open));
    for query in [query, "SELECT COUNT(*) FROM t"] {
        let (rows, done) = by_four(&scratch, &table(&input), query);
        expect(&done, 1, &["open.csv': the record at byte ", "does not end before byte", "a parallelism of 1"]);
        assert_eq!(rows, [""; 0]);
    }
}

/// A Parquet file of one row group, of which each reader takes a share.
#[test]
fn a_large_row_group_is_read_in_shares() {
    const ROWS: u64 = 3_000_000;
    let scratch = Scratch::new("large-group");
    let parquet = scratch.at("t.parquet");
    let job = scratch.write(
        "make.sql",
        format!(
            "CREATE TABLE made (n BIGINT, x DOUBLE) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '{ROWS}',
               'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{ROWS}');
             COPY (SELECT n, x, CAST(n % 10 AS STRING) AS s FROM made)
             TO '{parquet}' (FORMAT parquet, 'parquet.block.size' '1 gb', 'parquet.row-group.rows' '{ROWS}', 'parquet.compression' 'none');"
        ),
    );
    expect(&finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"])), 0, &[]);
    let table = format!("(n BIGINT, x DOUBLE, s STRING) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{parquet}')");
    for (condition, count, sum) in [("", ROWS, ROWS * (ROWS + 1) / 2), (" WHERE n BETWEEN 1499999 AND 1500002", 4, 6_000_002)] {
        let query = format!("SELECT COUNT(*), SUM(n), SUM(CHAR_LENGTH(s)), COUNT(x) FROM t{condition}");
        let (rows, done) = by_four(&scratch, &table, &query);
        expect(&done, 0, &[]);
        assert_eq!(rows, [format!("{count},{sum},{count},{count}")]);
    }
}
