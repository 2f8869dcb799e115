//! Ending transactions that another process began: those of the checkpoint are committed, all others of
//! the table aborted.

use std::time::{Duration, Instant};

use tidemill_connect::ConnectError;

use super::Prepared;
use super::ids::number;
use super::wire::{Broker, code};
use crate::access::Access;
use crate::options::LostTransactions;
use crate::properties::Connection;

/// The pause before something is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// The timeout that a transactional id is taken over with, ms; no transaction follows.
const TAKEN_OVER_MS: i32 = 60_000;

/// How long all of it may take.
fn patience(connection: &Connection) -> Duration {
    connection.timeout.max(Duration::from_secs(30))
}

/// Asks the coordinator of a transactional id until its answer is not one that passes by itself.
fn ask(
    connection: &Connection,
    access: &Access,
    id: &str,
    deadline: Instant,
    mut request: impl FnMut(&mut Broker) -> Result<i16, String>,
) -> Result<i16, String> {
    loop {
        let answer = Broker::any(&connection.servers, access, deadline).and_then(|mut broker| match broker.coordinator(id)? {
            Ok(address) => request(&mut Broker::connect(&address, access)?),
            Err(code) => Ok(code),
        });
        match answer {
            Ok(code) if !code::passing(code) => return Ok(code),
            other if Instant::now() >= deadline => return other,
            _ => std::thread::sleep(AGAIN),
        }
    }
}

/// Commits transactions that a checkpoint holds. Those that are committed already stay so.
///
/// # Errors
/// Brokers do not answer; one of the transactions was given up by them, unless that is to be ignored.
pub fn commit(connection: &Connection, prepared: &[Prepared], lost: LostTransactions) -> Result<(), ConnectError> {
    if prepared.is_empty() {
        return Ok(());
    }
    let access = Access::of(connection)?;
    let deadline = Instant::now() + patience(connection);
    for Prepared { topic, id, producer_id, producer_epoch } in prepared {
        let doing = format!("committing transaction '{id}' to topic '{topic}' at {}", connection.servers);
        let answer = ask(connection, &access, id, deadline, |broker| broker.commit(id, *producer_id, *producer_epoch));
        let given_up = match answer.map_err(|why| ConnectError::new(format!("{doing}: {why}")))? {
            code::NONE => continue,
            code::INVALID_PRODUCER_EPOCH | code::PRODUCER_FENCED | code::INVALID_TXN_STATE => {
                "brokers have aborted it, because the job was down for longer than 'properties.transaction.timeout.ms', or because another \
                 job has the same 'sink.transactional-id-prefix' and table: the rows of the last checkpoint are missing in the topic"
            }
            code::INVALID_PRODUCER_ID_MAPPING => {
                "brokers no longer know it, because the job was down for longer than their 'transactional.id.expiration.ms' (7 days by \
                 default): if the job was stopped in order, nothing is missing; if it crashed, the rows of the last checkpoint may be"
            }
            code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => {
                return Err(ConnectError::new(format!("{doing}: the user has no right to this transactional id")));
            }
            other => return Err(ConnectError::new(format!("{doing}: error {other} of the broker"))),
        };
        match lost {
            LostTransactions::Fail => {
                return Err(ConnectError::new(format!(
                    "{doing}: {given_up}; 'sink.lost-transactions' = 'ignore' goes on without it, --fresh begins anew"
                )));
            }
            LostTransactions::Ignore => tidemill_connect::notice(&format!("{}: {doing}: {given_up}; ignored", connection.owner)),
        }
    }
    Ok(())
}

/// The ids of the open transactions that a broker is responsible for.
fn ongoing(address: &str, access: &Access, deadline: Instant) -> Result<Vec<String>, String> {
    loop {
        // A broker that is down is responsible for nothing.
        let Ok(mut broker) = Broker::connect(address, access) else { return Ok(Vec::new()) };
        // Brokers before 3.0 list none: writers take over their own ids, and timeouts do the rest.
        match broker.transactions()? {
            Ok(listed) => return Ok(listed.into_iter().filter(|t| t.state == "Ongoing").map(|t| t.id).collect()),
            // It has just started, and reads its log.
            Err(code) if code::passing(code) && Instant::now() < deadline => std::thread::sleep(AGAIN),
            Err(code) => return Err(format!("{address}: error {code} of the broker")),
        }
    }
}

/// Aborts open transactions whose ids begin with `base`, but for those `held` by the checkpoint.
///
/// # Errors
/// Brokers do not answer, or refuse.
pub fn abort(connection: &Connection, base: &str, held: &[&str]) -> Result<(), ConnectError> {
    let access = Access::of(connection)?;
    let deadline = Instant::now() + patience(connection);
    let wrong = |why: String| ConnectError::new(format!("looking for open transactions at {}: {why}", connection.servers));
    let start = Instant::now() + connection.timeout;
    let brokers = Broker::any(&connection.servers, &access, start).and_then(|mut b| b.brokers());
    let brokers = brokers.map_err(|why| {
        ConnectError::new(format!(
            "no Kafka broker of {} answered within {} s ('connect.timeout'): {why}",
            connection.servers,
            connection.timeout.as_secs_f64()
        ))
    })?;
    let mut open = Vec::new();
    for address in brokers {
        open.extend(ongoing(&address, &access, deadline).map_err(wrong)?);
    }
    for id in open.iter().filter(|id| number(base, id).is_some() && !held.contains(&id.as_str())) {
        let code = ask(connection, &access, id, deadline, |broker| broker.take_over(id, TAKEN_OVER_MS)).map_err(wrong)?;
        if code != code::NONE {
            return Err(ConnectError::new(format!(
                "aborting transaction '{id}' at {}, which an earlier run has left open: error {code} of the broker",
                connection.servers
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
