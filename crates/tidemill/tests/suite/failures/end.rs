//! How the process ends.

use std::process::Command;

use super::{TABLES, expect};
use crate::harness::{Scratch, finish, text, tidemill};

/// As `exit` would: a thread that is inside a library (one that leaves a database) may be killed by that.
#[test]
fn libraries_are_not_taken_down_at_the_end() {
    let scratch = Scratch::new("end");
    let source = scratch.write("library.c", "#include <stdlib.h>\n__attribute__((destructor)) static void taken_down(void) { abort(); }\n");
    let library = scratch.at("library.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).output().expect("the C compiler that links Rust");
    assert!(built.status.success(), "{}", text(&built));
    scratch.write("t.csv", "1,2\n");
    let tables = TABLES.replace("${DIR}", &scratch.path().display().to_string());
    for (query, code, printed) in [("SELECT a FROM t", 0, "+I[1]\n"), ("SELECT c FROM t", 2, "")] {
        let job = scratch.write("job.sql", format!("{tables}INSERT INTO s {query};"));
        let output = finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]).env("LD_PRELOAD", &library));
        expect(&output, code, &[]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), printed);
    }
}
