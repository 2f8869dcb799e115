//! The tests of the whole: jobs as users run them.

mod capacity;
mod copy;
mod copy_bucket;
mod crash;
mod databases;
mod examples;
mod failures;
mod files;
mod functions;
mod golden;
mod harness;
mod kafka;
mod lookup;
mod nexmark;
mod oracle;
mod pattern_failures;
mod plans;
mod serve;
mod serve_crash;
mod siddhi;
mod soak;
mod soccer;
mod spill;
mod tree;
mod usage;
