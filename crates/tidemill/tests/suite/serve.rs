//! `tidemill serve` and its clients: jobs over REST, publishers and subscribers in several languages,
//! TLS and tokens, and what goes wrong. The server runs as a process of its own, as users run it.

mod adapters;
mod changes;
pub mod clients;
mod jobs;
mod protocols;
mod restarts;
pub mod security;
pub mod server;
mod trouble;
mod vwap;

use std::path::PathBuf;

use crate::harness::root;

/// The job of the example clients.
fn example() -> PathBuf {
    root().join("examples/clients/clients.sql")
}

/// Row `n` as the example clients publish it, as JSON.
fn order(n: u64) -> String {
    format!(r#"{{"id":{n},"customer":"customer {}","amount":{}}}"#, n % 7, n % 200)
}

/// Rows `first..first + count`, a line each.
fn orders(first: u64, count: u64) -> String {
    (first..first + count).map(|n| order(n) + "\n").collect()
}

/// What `per_customer` holds after the rows `0..count`, each once from each of `publishers`: a line each, sorted.
fn per_customer(count: u64, publishers: u64) -> Vec<String> {
    let of = |customer: u64| (0..count).filter(move |n| n % 7 == customer);
    let line = |customer: u64| {
        let (orders, amount) = (of(customer).count() as u64 * publishers, of(customer).map(|n| n % 200).sum::<u64>() * publishers);
        format!("customer {customer}: {orders} orders, {amount}")
    };
    (0..7).map(line).collect()
}

/// How many of the rows `0..count` are large.
fn large(count: u64) -> u64 {
    (0..count).filter(|n| n % 200 >= 100).count() as u64
}
