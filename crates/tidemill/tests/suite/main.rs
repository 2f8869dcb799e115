//! The tests of the whole: jobs as users run them.

mod crash;
mod examples;
mod failures;
mod files;
mod golden;
mod harness;
mod nexmark;
mod oracle;
mod pattern_failures;
mod plans;
mod serve;
mod serve_crash;
mod siddhi;
mod soak;
mod soccer;
mod tree;
mod usage;
