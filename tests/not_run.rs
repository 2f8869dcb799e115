//! What a test says that cannot run here: what it needs is missing.

use std::io::Write;

/// Says that `what` was not run, and why. What tests print is kept back where they pass, so this goes to the process's
/// own standard error, and into the file that `TIDEMILL_NOT_RUN` names, of which `make test` makes a list.
///
/// # Panics
/// Where `TIDEMILL_TESTS=strict`: a machine that must have everything has not.
#[track_caller]
pub fn not_run(what: &str) {
    assert!(std::env::var_os("TIDEMILL_TESTS").is_none_or(|how| how != "strict"), "NOT RUN: {what}");
    let line = format!("NOT RUN: {what}\n");
    // In one piece, since tests run beside each other.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(list) = std::env::var_os("TIDEMILL_NOT_RUN") {
        let file = std::fs::File::options().append(true).create(true).open(&list);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", list.display());
    }
}
