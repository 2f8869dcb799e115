//! The tests of the whole: jobs as users run them.

mod golden;
mod harness;
