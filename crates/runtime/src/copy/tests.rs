//! Tests of `copy`: which options a target gets.

use super::*;

fn options(to: &str, given: &[(&str, &str)]) -> Result<Target, String> {
    target(to, &given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<Vec<_>>())
}

#[track_caller]
fn check(to: &str, given: &[(&str, &str)], single: bool, expect: &[(&str, &str)]) {
    let target = options(to, given).unwrap();
    assert_eq!(target.single, single, "{to}");
    for (key, value) in expect {
        assert_eq!(target.options.get(*key).map(String::as_str), Some(*value), "{to}: {key}");
    }
}

#[test]
fn names_and_options() {
    check("a.csv", &[], true, &[("format", "csv"), ("csv.header", "true"), ("sink.single-file", "true")]);
    check("a.tsv.gz", &[("header", "false")], true, &[("format", "csv"), ("csv.header", "false"), ("csv.field-delimiter", "\t")]);
    check("out", &[("format", "PARQUET"), ("compression", "ZSTD")], false, &[("format", "parquet"), ("parquet.compression", "zstd")]);
    check("a.json", &[("partition_by", "k,l")], false, &[("sink.partition-by", "k,l"), ("format", "json")]);
    check("a.parquet/", &[], false, &[("format", "parquet")]);
    check("out", &[("format", "orc"), ("compression", "ZSTD")], false, &[("format", "orc"), ("orc.compress", "zstd")]);
    check("a.xlsx", &[("header", "false")], true, &[("format", "xlsx"), ("xlsx.header", "false")]);
    check("a.avro", &[("compression", "none"), ("sink.part-prefix", "x")], true, &[("avro.codec", "null"), ("sink.part-prefix", "x")]);
    assert!(options("a.csv", &[("overwrite", "true")]).unwrap().overwrite);
    assert!(options("a.csv", &[("overwrite", "x")]).unwrap_err().contains("option overwrite = 'x'"));
    assert!(options("a.csv", &[("fromat", "x")]).unwrap_err().contains("did you mean 'format'?"));
}

#[test]
fn names_of_files() {
    assert_eq!((compression("a.csv.gz"), compression("a.csv")), (Some("gzip"), None));
}
