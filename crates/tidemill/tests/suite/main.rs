//! The tests of the whole: jobs as users run them.

mod bench;
mod blocks;
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
mod live;
mod lookup;
mod mqtt;
mod nexmark;
mod oracle;
mod pattern_failures;
mod plans;
mod redis;
mod serve;
mod serve_crash;
mod siddhi;
mod sink_keys;
mod soak;
mod soccer;
mod sockets;
mod spill;
mod tree;
mod usage;

#[path = "../../../../tests/not_run.rs"]
mod not_run;
