//! The tests of the whole: jobs as users run them.

mod crash;
mod failures;
mod golden;
mod harness;
mod oracle;
