//! From prices and a workload to the lines of a bill, a line for each storage and format.

use super::prices::{Origin, Prices};
use super::workload::Workload;
use crate::show::{bytes, columns};

/// Bytes of a GB in price lists.
const GB: f64 = (1u64 << 30) as f64;

/// A month of the whole workload with its files in this storage and format. In the currency of the prices.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub storage: String,
    pub format: String,
    pub stored_bytes: u64,
    pub space: f64,
    pub operations: f64,
    pub network: f64,
    pub machine: f64,
}

impl Line {
    /// All of it.
    pub fn month(&self) -> f64 {
        self.space + self.operations + self.network + self.machine
    }
}

/// The lines, storage by storage.
///
/// # Errors
/// Hours of machines without a price.
pub fn lines(prices: &Prices, workload: &Workload) -> Result<Vec<Line>, String> {
    let machine = match &prices.machine {
        Some(machine) => machine.hour * workload.hours,
        None if workload.hours > 0.0 => return Err("the prices have no [machine], so hours of it cost nobody knows what".to_string()),
        None => 0.0,
    };
    let each = prices.storages.iter().flat_map(|storage| workload.stored.iter().map(move |stored| (storage, stored)));
    let line = each.map(|(storage, stored)| Line {
        storage: storage.name.clone(),
        format: stored.format.clone(),
        stored_bytes: stored.bytes,
        space: storage.gb_month * (stored.bytes as f64 / GB).max(storage.least_gb),
        operations: (storage.class_a * workload.class_a as f64 + storage.class_b * workload.class_b as f64) / 10_000.0,
        network: storage.egress_gb * workload.egress as f64 / GB,
        machine,
    });
    Ok(line.collect())
}

/// The bill as people read it: the lines, and where figures and prices are from.
pub fn table(prices: &Prices, workload: &Workload, lines: &[Line]) -> String {
    let money = |amount: f64| format!("{amount:.2}");
    let row = |line: &Line| -> Vec<String> {
        let amounts = [line.space, line.operations, line.network, line.machine, line.month()].map(money);
        [line.storage.clone(), line.format.clone(), bytes(line.stored_bytes)].into_iter().chain(amounts).collect()
    };
    let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let heads = ["storage", "format", "stored", "space", "operations", "network", "machine", "month"];
    let mut out = columns(&heads, &rows, &[false, false, true, true, true, true, true, true]);
    out += &format!("\n{} for a month; not in it: taxes, discounts, free allowances\n", prices.currency);
    for note in &workload.notes {
        out += &format!("{note}\n");
    }
    for storage in &prices.storages {
        out += &origin(&storage.name, &storage.origin);
        let least = lines.iter().any(|line| line.storage == storage.name && (line.stored_bytes as f64) < storage.least_gb * GB);
        if least {
            out += &format!("{}: {} GB are paid for at least\n", storage.name, storage.least_gb);
        }
    }
    if let (Some(machine), true) = (&prices.machine, workload.hours > 0.0) {
        out += &origin("machine", &machine.origin);
    }
    out
}

fn origin(name: &str, origin: &Origin) -> String {
    let parts: Vec<&str> =
        [&origin.about, &origin.date, &origin.source].into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { String::new() } else { format!("{name}: {}\n", parts.join("; ")) }
}
