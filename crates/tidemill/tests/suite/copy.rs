//! `tidemill copy`, `COPY … TO`, `describe` and `cache`: what they write, what they refuse, and copies that are killed
//! at any moment, whose target is absent or whole, and which `--resume` completes.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::crash::Random;
use crate::failures::{SmallDisk, expect};
use crate::harness::{Background, Scratch, finish, sink_lines, text, tidemill};
use crate::not_run::not_run;

/// Runs `tidemill copy`.
fn copy(arguments: &[&str]) -> Output {
    finish(tidemill().arg("copy").args(arguments))
}

/// The rows of a query, as CSV without its header line.
#[track_caller]
fn rows(query: &str) -> Vec<String> {
    let output = finish(tidemill().args(["sql", "--output", "csv", query]));
    expect(&output, 0, &[]);
    String::from_utf8_lossy(&output.stdout).lines().skip(1).map(str::to_string).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("the directory");
    let mut names: Vec<String> = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Three files of orders.
fn orders(scratch: &Scratch) {
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    scratch.write("in/a.csv", "id,customer,amount\n1,anna,2.5\n2,ben,\n");
    scratch.write("in/b.csv", "id,customer,amount\n3,anna,4\n4,\"c,d\",1\n");
    scratch.write("in/c.csv", "id,customer,amount\n5,,7.25\n");
}

#[test]
fn files_become_one_file() {
    let scratch = Scratch::new("copy");
    orders(&scratch);
    let out = scratch.at("out.parquet");
    expect(&copy(&[&scratch.at("in"), &out]), 0, &["5 rows from 3 files", "in 1 file", "on both sides"]);
    let all = ["1,anna,2.5", "2,ben,", "3,anna,4.0", "4,\"c,d\",1.0", "5,\"\",7.25"];
    assert_eq!(rows(&format!("SELECT * FROM '{out}'")), all, "in the order of the files; an empty STRING field is an empty text");
    expect(&copy(&[&scratch.at("in/a.csv"), &out]), 2, &["is there already", "--overwrite"]);
    assert_eq!(rows(&format!("SELECT COUNT(*) AS n FROM '{out}'")), ["5"]);
    expect(&copy(&[&scratch.at("in/a.csv"), &out, "--overwrite"]), 0, &["2 rows from 1 file"]);
    assert_eq!(rows(&format!("SELECT COUNT(*) AS n FROM '{out}'")), ["2"]);
    assert_eq!(names(scratch.path()), ["in", "out.parquet"], "nothing else is left");
}

#[test]
fn rows_and_columns_are_chosen() {
    let scratch = Scratch::new("copy-query");
    orders(&scratch);
    let out = scratch.at("out.json.gz");
    let input = scratch.at("in/*.csv");
    let select = "customer AS who, id * 2 AS twice";
    expect(&copy(&[&input, &out, "--where", "amount > 2", "--select", select, "--sort-by", "id DESC"]), 0, &["3 rows"]);
    assert_eq!(rows(&format!("SELECT twice, who FROM '{out}'")), ["10,\"\"", "6,anna", "2,anna"]);
    scratch.write("few.csv", "id\n2\n4\n");
    let few = scratch.at("few.json");
    expect(&copy(&[&input, &few, "--where", &format!("id IN (SELECT id FROM '{}')", scratch.at("few.csv"))]), 0, &["2 rows"]);
    assert_eq!(rows(&format!("SELECT id FROM '{few}'")), ["2", "4"], "a condition may name files of its own");
    expect(&copy(&[&input, &scratch.at("x.csv"), "--select", "COUNT(*) AS n"]), 2, &["for each file by itself"]);
    expect(&copy(&[&scratch.at("in"), &scratch.at("x.csv"), "--where", "amont > 2"]), 2, &["amont", "amount"]);
    expect(&copy(&[&scratch.at("in"), &scratch.at("x.csv"), "--where", "true; SELECT 1"]), 2, &[]);
    expect(&copy(&[&scratch.at("nothing"), &scratch.at("x.csv")]), 2, &["nothing"]);
    expect(&copy(&[&scratch.at("in")]), 2, &["FROM"]);
    assert!(!scratch.path().join("x.csv").exists());
}

#[test]
fn a_directory_gets_a_file_for_each_or_so_many() {
    let scratch = Scratch::new("copy-files");
    orders(&scratch);
    let (input, out) = (scratch.at("in"), scratch.at("out"));
    expect(&copy(&[&input, &out, "--write", "format=csv"]), 0, &["in 3 files"]);
    assert_eq!(names(Path::new(&out)), ["part-00001-0-0.csv", "part-00002-0-0.csv", "part-00003-0-0.csv"]);
    expect(&copy(&[&input, &out, "--overwrite", "--write", "format=parquet", "--files", "2"]), 0, &["in 2 files"]);
    assert_eq!(names(Path::new(&out)), ["part-00001-0-0.parquet", "part-00002-0-0.parquet"]);
    assert_eq!(rows(&format!("SELECT SUM(id) AS s FROM '{out}'")), ["15"]);
    expect(&copy(&[&input, &out]), 2, &["--overwrite"]);
}

#[test]
fn directories_are_columns_and_back() {
    let scratch = Scratch::new("copy-hive");
    orders(&scratch);
    let out = scratch.at("out");
    expect(&copy(&[&scratch.at("in"), &out, "--partition-by", "customer", "--write", "format=parquet"]), 0, &["5 rows", "on both sides"]);
    assert_eq!(names(Path::new(&out)), ["customer=", "customer=anna", "customer=ben", "customer=c,d"]);
    assert_eq!(rows(&format!("SELECT id, amount FROM '{out}' WHERE customer = 'anna' ORDER BY id")), ["1,2.5", "3,4.0"]);
    let plain = format!("SELECT * FROM read_parquet('{out}', hive_partitioning = false) ORDER BY id LIMIT 1");
    assert_eq!(rows(&plain), ["1,2.5"]);
}

#[test]
fn columns_are_put_together_by_name() {
    let scratch = Scratch::new("copy-union");
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    scratch.write("in/a.csv", "id,name\n1,anna\n");
    scratch.write("in/b.csv", "amount,id\n2.5,2\n");
    let (input, out) = (scratch.at("in"), scratch.at("out.csv"));
    expect(&copy(&[&scratch.at("in/a.csv"), &scratch.at("in/b.csv"), &out]), 2, &["--union-by-name"]);
    expect(&copy(&[&input, &out, "--union-by-name"]), 0, &["2 rows from 2 files"]);
    assert_eq!(std::fs::read_to_string(&out).expect("the copy"), "id,name,amount\n1,anna,\n2,,2.5\n");
    let union = format!("SELECT id, name, amount FROM read_csv('{input}/*.csv', union_by_name = true) ORDER BY id");
    assert_eq!(rows(&union), ["1,anna,", "2,,2.5"]);
    let named = format!("SELECT id, filename LIKE '%/in/a.csv' AS a FROM read_csv('{input}/a.csv', filename = true)");
    assert_eq!(rows(&named), ["1,true"]);
}

#[test]
fn a_copy_that_would_lose_something_is_no_copy() {
    let scratch = Scratch::new("copy-loss");
    scratch.write("a.json", "{\"a\": 1}\n{\"a\": null}\n");
    let (input, out) = (scratch.at("a.json"), scratch.at("out.csv"));
    // A row of one NULL is an empty line, which is no row.
    expect(&copy(&[&input, &out]), 1, &["not the same", "csv.null-literal"]);
    assert_eq!(names(scratch.path()), ["a.json"]);
    expect(&copy(&[&input, &out, "--write", "csv.null-literal=NULL"]), 0, &["2 rows"]);
    assert_eq!(std::fs::read_to_string(&out).expect("the copy"), "a\n1\nNULL\n");
}

/// On a full disk what had been begun stayed beside the target, hidden, until somebody copied there again.
#[test]
#[cfg(target_os = "linux")]
fn a_copy_that_fails_leaves_what_was_there_and_nothing_else() {
    let scratch = Scratch::new("copy-fails");
    orders(&scratch);
    let (input, out) = (scratch.at("in"), scratch.at("out"));
    let arguments = [input.as_str(), out.as_str(), "--overwrite", "--files", "1", "--write", "format=csv"];
    expect(&copy(&arguments), 0, &["in 1 file"]);
    let before = (names(Path::new(&out)), sink_lines(Path::new(&out)));
    let check = |said: &str| {
        expect(&copy(&arguments), 1, &[said]);
        assert_eq!(names(scratch.path()), ["in", "out"], "{said}");
        assert_eq!((names(Path::new(&out)), sink_lines(Path::new(&out))), before, "{said}");
    };
    // The manifest is written to a device that has no room.
    std::fs::create_dir(scratch.path().join(".out.copying")).expect("a directory");
    std::os::unix::fs::symlink("/dev/full", scratch.path().join(".out.copying/manifest.json.new")).expect("a link");
    check("No space left");
    // The last file cannot be read: rows of the others are written by then.
    scratch.write("in/c.csv", "id,customer,amount\nfive,,7.25\n");
    check("c.csv");
}

/// Rows of both files of [`small_and_large`].
pub const SMALL_AND_LARGE: u64 = 50_000;

/// A directory with a file that fits on a [`SmallDisk`] and one that does not, however it is packed.
pub fn small_and_large(scratch: &Scratch) -> String {
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    let mut random = Random(409);
    for (name, rows) in [("a", 0..100), ("b", 100..SMALL_AND_LARGE)] {
        let lines: String = rows.map(|n| format!("{n},{}\n", random.below(1_000_000_000))).collect();
        scratch.write(&format!("in/{name}.csv"), format!("id,value\n{lines}"));
    }
    scratch.at("in")
}

/// While rows are written, not before. Where nothing is done nothing stays; what is done is kept, and gone on with.
#[test]
fn a_disk_that_fills_up_is_named() {
    let scratch = Scratch::new("copy-full");
    let at = scratch.path().join("disk");
    let Some(disk) = SmallDisk::mount(&at) else {
        not_run("copies to a full disk (mounting a small one takes a superuser)");
        return;
    };
    let input = small_and_large(&scratch);
    for name in ["out.csv", "out.csv.gz", "out.parquet"] {
        let place = format!("disk/.{name}.copying/");
        expect(&copy(&[&input, &scratch.at(&format!("disk/{name}"))]), 1, &[&place, "No space left", "free some space"]);
        assert_eq!(names(&at), Vec::<String>::new(), "{name}");
    }
    let out = scratch.at("disk/out");
    let arguments = [input.as_str(), out.as_str(), "--write", "format=csv", "--parallel", "1"];
    expect(&copy(&arguments), 1, &["disk/.out.copying/", "No space left", "free some space", "1 of 2 parts are done", "--resume"]);
    assert_eq!(names(&at), [".out.copying"], "nothing is seen");
    disk.grow();
    expect(&copy(&[&arguments[..], &["--resume"]].concat()), 0, &["1 of 2 parts were done", "on both sides"]);
    let sum: u64 = (0..SMALL_AND_LARGE).sum();
    assert_eq!(rows(&format!("SELECT COUNT(*) AS n, SUM(id) AS s FROM '{out}'")), [format!("{SMALL_AND_LARGE},{sum}")]);
    assert_eq!(names(&at), ["out"]);
}

#[test]
fn copy_in_sql_writes_a_file_or_a_directory() {
    let scratch = Scratch::new("copy-sql");
    orders(&scratch);
    let sql = |statement: String| finish(tidemill().args(["sql", &statement]));
    let (input, out) = (scratch.at("in"), scratch.at("out.csv"));
    expect(&sql(format!("COPY (SELECT id FROM '{input}' ORDER BY id) TO '{out}'")), 0, &["5 rows written"]);
    assert_eq!(std::fs::read_to_string(&out).expect("the file"), "id\n1\n2\n3\n4\n5\n");
    expect(&sql(format!("COPY '{input}' TO '{out}'")), 2, &["is there already", "OVERWRITE"]);
    expect(&sql(format!("COPY (SELECT id FROM '{input}' WHERE id < 2) TO '{out}' (OVERWRITE, HEADER false)")), 0, &[]);
    assert_eq!(std::fs::read_to_string(&out).expect("the file"), "1\n");
    expect(&sql(format!("COPY (SELECT id FROM '{input}' WHERE id < 0) TO '{}'", scratch.at("none.csv"))), 0, &["0 rows written"]);
    assert_eq!(std::fs::read_to_string(scratch.at("none.csv")).expect("a file without rows"), "id\n");
    let parts = scratch.at("parts");
    expect(&sql(format!("COPY '{input}' TO '{parts}' (FORMAT parquet, PARTITION_BY (customer))")), 0, &["5 rows written"]);
    assert_eq!(rows(&format!("SELECT SUM(id) AS s FROM '{parts}' WHERE customer = 'ben'")), ["2"]);
    expect(&sql(format!("COPY '{input}' TO '{out}' (FROMAT csv)")), 2, &["did you mean 'format'?"]);
    assert_eq!(names(scratch.path()), ["in", "none.csv", "out.csv", "parts"]);
}

#[test]
fn files_are_described() {
    let scratch = Scratch::new("describe");
    orders(&scratch);
    let out = scratch.at("out.parquet");
    expect(&copy(&[&scratch.at("in"), &out, "--write", "compression=zstd", "--quiet"]), 0, &[]);
    let described = finish(tidemill().args(["describe", &out, &scratch.at("in/a.csv")]));
    expect(&described, 0, &[]);
    let shown = String::from_utf8_lossy(&described.stdout).into_owned();
    for part in [
        "parquet, compressed by zstd, 5 rows, 1 row groups",
        "in the page cache",
        "customer  STRING",
        "csv, delimiter ',', a header line, 2 rows",
    ] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    let json = finish(tidemill().args(["describe", "--json", &out]));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one object");
    assert_eq!((json["rows"].as_u64(), json["row_groups"][0]["rows"].as_u64()), (Some(5), Some(5)));
    assert_eq!(json["columns"][0], serde_json::json!({ "name": "id", "type": "BIGINT" }));
    assert_eq!(json["stored"][0]["compression"][0], "zstd");
    let cached = finish(tidemill().args(["cache", &scratch.at("in"), &out]));
    expect(&cached, 0, &[]);
    assert!(text(&cached).contains("4 files"), "{}", text(&cached));
}

/// The command of the kills: 24 files, one part for each, or all in one file.
fn killed_command(scratch: &Scratch, target: &str, resume: bool) -> Command {
    let mut command = tidemill();
    command.args(["copy", &scratch.at("in"), target, "--quiet", "--write", "format=csv", "--write", "header=false", "--parallel", "2"]);
    if resume {
        command.arg("--resume");
    }
    command
}

/// The rows of a target; none if it is not there.
fn target_rows(target: &str) -> Option<Vec<String>> {
    let path = Path::new(target);
    if path.is_dir() {
        return Some(sink_lines(path));
    }
    let mut lines: Vec<String> = std::fs::read_to_string(path).ok()?.lines().map(str::to_string).collect();
    lines.sort();
    Some(lines)
}

#[test]
fn killed_at_any_moment() {
    let wanted: u64 = std::env::var("COPY_KILLS").map_or(10, |n| n.parse().expect("COPY_KILLS is a number"));
    let mut random = Random(611);
    let scratch = Scratch::new("copy-kill");
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    let mut expected: Vec<String> = Vec::new();
    for file in 0..24 {
        let lines: Vec<String> = (0..3000).map(|row| format!("{file},{row},{}", random.below(1_000_000_000))).collect();
        scratch.write(&format!("in/{file:02}.csv"), format!("file,row,value\n{}\n", lines.join("\n")));
        expected.extend(lines);
    }
    expected.sort();
    let begun = Instant::now();
    expect(&finish(&mut killed_command(&scratch, &scratch.at("whole"), false)), 0, &[]);
    let length = begun.elapsed().as_millis() as u64 + 1;
    assert_eq!(target_rows(&scratch.at("whole")).as_ref(), Some(&expected));
    let (mut absent, mut whole, mut went_on) = (0, 0, 0);
    for number in 0..wanted {
        let single = number % 3 == 2;
        let target = scratch.at(&format!("out{number}{}", if single { ".csv" } else { "" }));
        let staging = scratch.path().join(format!(".{}.copying", Path::new(&target).file_name().expect("a name").to_string_lossy()));
        // The second kill, of one in four, meets a copy that goes on.
        for attempt in 0..1 + u64::from(number % 4 == 3) {
            let after = random.below(length + length / 4);
            let mut running = Background::start(&mut killed_command(&scratch, &target, attempt > 0));
            std::thread::sleep(Duration::from_millis(after));
            // It may have ended by itself.
            let _ = running.0.kill();
            let _ = running.0.wait();
            match target_rows(&target) {
                None => absent += 1,
                Some(rows) => {
                    assert_eq!(rows, expected, "kill {number} after {after} ms: a target that is not whole");
                    whole += 1;
                }
            }
        }
        went_on += usize::from(staging.join("manifest.json").exists());
        let resumed = finish(&mut killed_command(&scratch, &target, true));
        expect(&resumed, 0, &[]);
        assert_eq!(target_rows(&target).as_ref(), Some(&expected), "kill {number}, resumed: {}", text(&resumed));
        assert!(!staging.exists(), "kill {number}: what a finished copy leaves behind");
    }
    println!("{wanted} copies killed: target {absent} times absent, {whole} times whole; {went_on} went on from a manifest");
}

#[test]
fn an_unfinished_copy_is_not_thrown_away() {
    let scratch = Scratch::new("copy-unfinished");
    orders(&scratch);
    let (input, out) = (scratch.at("in"), scratch.at("out"));
    // The third file cannot be read: the others are done, and kept.
    scratch.write("in/c.csv", "id,customer,amount\nfive,,7.25\n");
    let arguments = [input.as_str(), out.as_str(), "--write", "format=csv", "--parallel", "1"];
    expect(&copy(&arguments), 1, &["c.csv", "2 of 3 parts are done", "--resume"]);
    assert!(!Path::new(&out).exists());
    expect(&copy(&arguments), 2, &["an unfinished copy", "2 of 3", "--resume", "--overwrite"]);
    scratch.write("in/c.csv", "id,customer,amount\n5,,7.25\n");
    let other = [&arguments[..], &["--resume", "--where", "id > 1"]].concat();
    expect(&copy(&other), 2, &["begun with other options"]);
    let resumed = [&arguments[..], &["--resume"]].concat();
    expect(&copy(&resumed), 0, &["2 of 3 parts were done", "5 rows from 3 files"]);
    expect(&copy(&resumed), 0, &["nothing to resume"]);
    assert_eq!(rows(&format!("SELECT SUM(id) AS s FROM '{out}'")), ["15"]);
}
