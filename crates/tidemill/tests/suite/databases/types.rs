//! Every type there and back: the ends of each, and values made up at random (`DATABASE_SEED`). Lines of a file by way of a table that
//! the job creates are what they are by themselves.

use std::fmt::Write as _;
use std::path::Path;

use super::{csv, run, runs, wanted};
use crate::crash::Random;
use crate::failures::expect;
use crate::harness::{Scratch, sink_lines};

/// Columns of every type.
const COLUMNS: &str = "id INT, b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f4 FLOAT, f8 DOUBLE, d DECIMAL(38, 10), s STRING, \
                       y BYTES, da DATE, t TIME(3), ts3 TIMESTAMP(3), ts6 TIMESTAMP(6), ltz TIMESTAMP_LTZ(3), ts0 TIMESTAMP(0), \
                       ts9 TIMESTAMP(9), ltz6 TIMESTAMP_LTZ(6)";
/// Rows with their smallest, largest and oddest values. These servers keep microseconds, so nanoseconds come by the thousand.
const ENDS: &str = "\
1,true,-128,-32768,-2147483648,-9223372036854775808,-3.4028235E38,-1.7976931348623157E308,-9999999999999999999999999999.9999999999,\
\"\",AA==,0001-01-01,00:00:00,0001-01-01 00:00:00,0001-01-01 00:00:00.000001,0001-01-01 00:00:00Z,\
0001-01-01 00:00:00,1677-09-21 00:12:44.000001,0001-01-01 00:00:00.000001Z
2,false,127,32767,2147483647,9223372036854775807,3.4028235E38,1.7976931348623157E308,9999999999999999999999999999.9999999999,\
\\N,AP8QJw==,9999-12-31,23:59:59.999,9999-12-31 23:59:59.999,9999-12-31 23:59:59.999999,9999-12-31 23:59:59.999Z,\
9999-12-31 23:59:59,2262-04-11 23:47:16.854775,9999-12-31 23:59:59.999999Z
3,true,0,0,0,0,1.1,5.0E-324,0.0000000001,\
äöü 😀 '\\t' ; --,YWJj,1970-01-01,12:34:56.7,2024-02-29 12:00:00.5,1969-12-31 23:59:59.999999,2024-02-29 12:00:00.5Z,\
2024-02-29 12:00:00,1969-12-31 23:59:59.999999,1969-12-31 23:59:59.999999Z
4,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL
";
/// Columns that have parts, and rows with what those may be; keys of maps are in the order that JSONB keeps. CSV has no bytes of
/// length 0, which are NULL there, so those are here.
const NESTED_COLUMNS: &str = "id INT, a ARRAY<INT>, t ARRAY<STRING>, d ARRAY<DECIMAL(10, 2)>, \
                              r ROW<x INT, y STRING, z DECIMAL(38, 10)>, m MAP<STRING, BIGINT>, y BYTES";
const NESTED: &str = r#"{"id":1,"a":[1,null,-2147483648],"t":["a,b","\"q\" \\ 😀",null,""],"d":[1.50,-99999999.99],"r":{"x":1,"y":"in","z":1234567890123456789012345678.0123456789},"m":{"a":9223372036854775807,"bb":-1},"y":"YWJj"}
{"id":2,"a":[],"t":[],"d":[],"r":{"x":null,"y":null,"z":null},"m":{},"y":""}
{"id":3,"a":null,"t":null,"d":null,"r":null,"m":null,"y":null}
"#;
/// Rows made up.
const MADE_UP: u64 = 2_000;
/// What texts are made of: what files, statements and drivers take for something, and characters of one to four bytes.
const LETTERS: &[char] = &[
    'a', 'Z', '0', ' ', '\t', '\\', '\'', '"', '`', ',', ';', '%', '_', '?', '$', '-', '\u{7f}', 'ä', 'ß', '\u{301}', '€', '中', '😀', '𝄞',
];
const BASE64: &[char] = &['A', 'B', 'Q', 'Z', 'a', 'f', 'z', '0', '7', '9', '+', '/'];

/// The ends of all types, so many times, and values at random, by way of a table. `with` is what stands behind its columns.
#[track_caller]
pub fn check(scratch: &Scratch, with: &str, times: usize) {
    let seed = wanted("DATABASE_SEED", 2024);
    let mut random = Random(seed);
    let made_up: String = (0..MADE_UP).map(|id| line(&mut random, id)).collect();
    println!("values by the seed {seed}");
    check_lines(scratch, COLUMNS, &(ENDS.repeat(times) + &made_up), with);
}

/// Lines of a file by way of a table are what they are by themselves.
#[track_caller]
pub fn check_lines(scratch: &Scratch, columns: &str, lines: &str, with: &str) {
    by_way_of(scratch, columns, &csv(scratch, columns, lines), "'csv', 'csv.null-literal' = 'NULL'", with);
}

/// Lists, rows and maps by way of a table.
#[track_caller]
pub fn check_nested(scratch: &Scratch, with: &str) {
    let path = scratch.write("in.json", NESTED);
    let source =
        format!("CREATE TABLE source ({NESTED_COLUMNS}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');\n");
    by_way_of(scratch, NESTED_COLUMNS, &source, "'json'", with);
}

/// Nanoseconds are refused by servers that keep microseconds, with their column and value: rounded they would be another time.
#[track_caller]
pub fn check_nanoseconds(scratch: &Scratch, with: &str) {
    let columns = "id INT, ts9 TIMESTAMP(9)";
    let source = csv(scratch, columns, "1,2024-02-29 12:00:00.123456000\n2,2024-02-29 12:00:00.123456789\n");
    let sql = format!("{source}CREATE TABLE db ({columns}) {with};\nINSERT INTO db SELECT * FROM source;");
    expect(&run(scratch, &sql, &["--parallelism", "1"]), 1, &["column 'ts9'", "123456789"]);
}

/// Keys of other types than whole numbers and text, and what makes values for them.
static KEYS: [(&str, fn(&mut Random) -> String); 4] =
    [("DECIMAL(38, 10)", decimal), ("DATE", date), ("TIMESTAMP(6)", moment), ("BYTES", base64)];

/// Rows by a key of each of those types, and by one of all of them, come, change, and go again where their count passes 20: what is
/// left is what the same query finds at once. `with` is what stands behind the columns of a table of this name, which the job makes.
#[track_caller]
pub fn check_keys(with: &dyn Fn(&str) -> String) {
    let mut random = Random(wanted("DATABASE_SEED", 2024));
    for (number, kinds) in [&KEYS[0..1], &KEYS[1..2], &KEYS[2..3], &KEYS[3..4], &KEYS[..]].into_iter().enumerate() {
        let scratch = Scratch::new("database-keys");
        let names: Vec<String> = (0..kinds.len()).map(|i| format!("k{i}")).collect();
        let names = names.join(", ");
        let columns: String = kinds.iter().enumerate().map(|(i, (kind, _))| format!("k{i} {kind}, ")).collect();
        let keys: Vec<String> = (0..300).map(|_| kinds.iter().map(|(_, value)| value(&mut random) + ",").collect()).collect();
        let mut lines = String::new();
        for n in 0..6_000 {
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{}{n}", keys[random.below(300) as usize]);
        }
        let source = csv(&scratch, &format!("{columns}n BIGINT"), &lines);
        let (first, second) = (scratch.at("direct"), scratch.at("back"));
        let columns = format!("{columns}c BIGINT, m BIGINT");
        let out =
            |path: &str| format!("CREATE TABLE o ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv');\n");
        let query = format!("SELECT {names}, COUNT(*), MAX(n) FROM source GROUP BY {names} HAVING COUNT(*) <= 20");
        let table = format!("keyed_{number}");
        let database = format!("CREATE TABLE db ({columns}, PRIMARY KEY ({names}) NOT ENFORCED) {};\n", with(&table));
        runs(&scratch, &format!("{source}{}INSERT INTO o {query};", out(&first)), &["--set", "execution.runtime-mode=batch"]);
        let changes = ["--parallelism", "2", "--set", "execution.runtime-mode=streaming", "--set", "block.size=100"];
        runs(&scratch, &format!("{source}{database}INSERT INTO db {query};"), &changes);
        runs(&scratch, &format!("{database}{}INSERT INTO o SELECT * FROM db;", out(&second)), &["--parallelism", "1"]);
        let (direct, back) = (sink_lines(Path::new(&first)), sink_lines(Path::new(&second)));
        let other = direct.iter().zip(&back).find(|(direct, back)| direct != back);
        assert!(direct == back, "{names}: {} and {} rows; the first that differs: {other:#?}", direct.len(), back.len());
        assert!((1..300).contains(&direct.len()), "{names}: {} rows are left", direct.len());
    }
}

/// What a table `source` holds is by way of another what it is by itself, in files of this format.
#[track_caller]
fn by_way_of(scratch: &Scratch, columns: &str, source: &str, file_format: &str, with: &str) {
    let (first, second) = (scratch.at("direct"), scratch.at("back"));
    let out = |path: &str| {
        format!("CREATE TABLE o ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = {file_format});\n")
    };
    runs(scratch, &format!("{source}{}INSERT INTO o SELECT * FROM source;", out(&first)), &[]);
    let database = format!("CREATE TABLE db ({columns}) {with};\n");
    runs(scratch, &format!("{source}{database}INSERT INTO db SELECT * FROM source;"), &["--parallelism", "1"]);
    runs(scratch, &format!("{database}{}INSERT INTO o SELECT * FROM db;", out(&second)), &["--parallelism", "1"]);
    let (direct, back) = (sink_lines(Path::new(&first)), sink_lines(Path::new(&second)));
    let other = direct.iter().zip(&back).find(|(direct, back)| direct != back);
    assert!(direct == back, "{} and {} rows; the first that differs: {other:#?}", direct.len(), back.len());
}

/// A line of all columns.
fn line(random: &mut Random, id: u64) -> String {
    let mut line = (10 + id).to_string();
    for value in values(random) {
        // Writing to a String cannot fail.
        let _ = if random.below(12) == 0 { write!(line, ",NULL") } else { write!(line, ",{value}") };
    }
    line.push('\n');
    line
}

/// A value for each column but the first.
fn values(random: &mut Random) -> [String; 18] {
    [
        (random.below(2) == 0).to_string(),
        whole(random, 8),
        whole(random, 16),
        whole(random, 32),
        whole(random, 64),
        format!("{:e}", float(random)),
        format!("{:e}", double(random)),
        decimal(random),
        format!("\"{}\"", letters(random, LETTERS, 1).replace('"', "\"\"")),
        base64(random),
        date(random),
        time(random, 3),
        format!("{} {}", date(random), time(random, 3)),
        format!("{} {}", date(random), time(random, 6)),
        format!("{} {}Z", date(random), time(random, 3)),
        format!("{} {}", date(random), time(random, 0)),
        format!("{}{} {}000", 1700 + random.below(500), &date(random)[4..], time(random, 6)),
        format!("{} {}Z", date(random), time(random, 6)),
    ]
}

/// A whole number of so many bits.
fn whole(random: &mut Random, bits: u32) -> String {
    (bits_of(random) as i64 >> (64 - bits)).to_string()
}

fn bits_of(random: &mut Random) -> u64 {
    random.below(1 << 31) << 33 | random.below(1 << 31) << 2 | random.below(4)
}

fn float(random: &mut Random) -> f32 {
    let float = f32::from_bits((bits_of(random) >> 32) as u32);
    if float.is_normal() { float } else { 0.1 }
}

fn double(random: &mut Random) -> f64 {
    let double = f64::from_bits(bits_of(random));
    if double.is_normal() { double } else { 0.1 }
}

/// Up to 28 digits before the point, and ten behind it.
fn decimal(random: &mut Random) -> String {
    let mut text = if random.below(2) == 0 { "-1".to_string() } else { "1".to_string() };
    (0..random.below(28)).for_each(|_| text.push(random.of(&['0', '1', '5', '9'])));
    text.push('.');
    (0..10).for_each(|_| text.push(random.of(&['0', '1', '5', '9'])));
    text
}

/// So many letters, a multiple of `unit`.
fn letters(random: &mut Random, of: &[char], unit: u64) -> String {
    (0..unit * (1 + random.below(12))).map(|_| random.of(of)).collect()
}

fn date(random: &mut Random) -> String {
    format!("{:04}-{:02}-{:02}", 1 + random.below(9999), 1 + random.below(12), 1 + random.below(28))
}

/// A time with a date, half of them without digits behind the second.
fn moment(random: &mut Random) -> String {
    let digits = if random.below(2) == 0 { 0 } else { 6 };
    format!("{} {}", date(random), time(random, digits))
}

/// Bytes, at least one.
fn base64(random: &mut Random) -> String {
    letters(random, BASE64, 4)
}

/// A time of day with so many digits behind the second.
fn time(random: &mut Random, digits: usize) -> String {
    let part = random.below(10u64.pow(digits as u32));
    let seconds = format!("{:02}:{:02}:{:02}", random.below(24), random.below(60), random.below(60));
    if digits == 0 { seconds } else { format!("{seconds}.{part:0digits$}") }
}
