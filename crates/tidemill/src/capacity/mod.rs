//! `tidemill capacity`: what a workload costs. [`prices`] reads price files ([`toml`] their form), [`workload`] what is done in a
//! month, [`cost`] makes the lines of the bill. Nothing is asked of any provider: prices are what the file says.

mod cost;
mod prices;
#[cfg(test)]
mod tests;
mod toml;
pub mod workload;

use crate::Failure;
use crate::args::{CapacityCommand, CostArgs};
use prices::Prices;
use workload::Workload;

/// Runs one of the commands.
pub fn capacity(command: &CapacityCommand) -> Result<(), Failure> {
    match command {
        CapacityCommand::Cost(args) => {
            print!("{}", bill(args).map_err(Failure::usage)?);
            Ok(())
        }
        CapacityCommand::Prices => {
            print!("{}", prices::EXAMPLE);
            Ok(())
        }
    }
}

/// What is printed.
///
/// # Errors
/// Prices or summaries that cannot be read, a workload without anything stored.
fn bill(args: &CostArgs) -> Result<String, String> {
    let prices = match &args.prices {
        None => Prices::parse(prices::EXAMPLE)?,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| format!("reading the prices '{}': {e}", path.display()))?;
            Prices::parse(&text).map_err(|why| format!("the prices '{}': {why}", path.display()))?
        }
    };
    let workload = Workload::of(args)?;
    let lines = cost::lines(&prices, &workload)?;
    if !args.json {
        return Ok(cost::table(&prices, &workload, &lines));
    }
    let cents = |amount: f64| (amount * 100.0).round() / 100.0;
    let object = |line: &cost::Line| {
        let json = serde_json::json!({
            "storage": line.storage,
            "format": line.format,
            "stored_bytes": line.stored_bytes,
            "currency": prices.currency,
            "space": cents(line.space),
            "operations": cents(line.operations),
            "network": cents(line.network),
            "machine": cents(line.machine),
            "month": cents(line.month()),
        });
        format!("{json}\n")
    };
    Ok(lines.iter().map(object).collect())
}
