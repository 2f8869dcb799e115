//! Notices: what somebody should read and what is no error (a server that is away, rows that were skipped). They go to
//! one place for the whole process; a library tells nobody unless its user asked for them.

use std::sync::OnceLock;

static TO: OnceLock<fn(&str)> = OnceLock::new();

/// Where notices go from now on: a line each, without line end. Without this nobody is told. The first call counts.
pub fn notices(to: fn(&str)) {
    // Whoever came first keeps them.
    let _ = TO.set(to);
}

/// Tells who asked for notices.
pub fn notice(text: &str) {
    if let Some(to) = TO.get() {
        to(text);
    }
}
