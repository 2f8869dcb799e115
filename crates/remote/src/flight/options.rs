//! Options of the connector `flight`, and what publishers and subscribers are told by them.

use std::time::Duration;

use serde::Serialize;
use tidemill_connect::ConnectError;
use tidemill_format::options::{ByteSize, OptionSet, OptionValue, RawOptions};
use tidemill_format::{option_enum, options};

use super::client::{Client, ClientOptions};
use crate::url::StreamUrl;

option_enum! {
    /// What happens to a stream whose rows are updated and deleted.
    pub enum Changes {
        /// It is refused.
        Refuse = "refuse",
        /// What a row does stands in a column `row_kind`, and the row counts as an insert.
        AsColumn = "as-column",
        /// Rows are what they are: inserted, updated and deleted.
        Apply = "apply",
    }
}

option_enum! {
    /// What the server does with a subscriber that does not keep up.
    pub enum Slow {
        /// It ends the subscription and says so.
        Drop = "drop",
        /// The job that writes the stream waits.
        Wait = "wait",
    }
}

options! {
    /// Options of the connector `flight`.
    pub struct FlightOptions {
        /// The stream: `flight://host:port/stream`, or `flight+tls://host:port/stream` for an
        /// encrypted connection.
        ours "url" => url: StreamUrl;
        /// The token that the server asks for. By default what the environment variable
        /// TIDEMILL_TOKEN holds.
        ours "token" => token: Option<String>;
        /// A file of PEM certificates that the server's must go back to. By default those that the
        /// system trusts.
        ours "ca-file" => ca_file: Option<String>;
        /// Sends the token over a connection that is not encrypted even to another machine.
        ours "insecure" => insecure: bool = false;
        /// How long an attempt to connect may take.
        ours "connect-timeout" => connect_timeout: Duration = Duration::from_secs(5);
        /// How often to try again when the server does not answer or goes away; by default for ever.
        ours "reconnect.attempts" => reconnect_attempts: Option<u32>;
        /// How long to wait before the first further attempt; it doubles with each.
        ours "reconnect.backoff" => backoff: Duration = Duration::from_millis(100);
        /// The longest wait between attempts.
        ours "reconnect.backoff-max" => backoff_max: Duration = Duration::from_secs(5);
        /// Sink: how much may be on its way and not yet acknowledged, for each writer. Source: how
        /// much may wait for the job.
        ours "window-bytes" => window: ByteSize = ByteSize(64 << 20);
        /// Sink: the publisher's name at the server, for each writer with its number behind. By
        /// default a new one for each run.
        ours "publisher" => publisher: Option<String>;
        /// Sink: rows go out in whole blocks of so many, unless the input pauses; a message holds as many
        /// blocks as are at hand, up to about 128 kb or one block. By default in any number.
        ours "sink.block-size" => block_rows: Option<u32>;
        /// Source: the subscriber's name at the server, which keeps what this name has not
        /// acknowledged. Needs a stream whose delivery is exactly-once.
        ours "name" => name: Option<String>;
        /// Source: where to begin, unless a checkpoint says it: `now`, `snapshot`, `earliest`,
        /// `acknowledged` or the number of a row. By default `acknowledged` with a name, otherwise
        /// `now`, with changes that are applied `snapshot`.
        ours "from" => from: Option<Start>;
        /// Source: a condition in SQL over the stream's columns; the server sends only rows for
        /// which it is true.
        ours "filter" => filter: Option<String>;
        /// Source: what happens to a stream whose rows are updated and deleted: `refuse`; `as-column` for a
        /// table with a column row_kind TINYINT (0 +I, 1 -U, 2 +U, 3 -D); `apply` makes the table one whose rows
        /// are updated and deleted, and begins with the stream's contents, or with its oldest row. Sink: with
        /// `apply` updates and deletions are published, too, into a stream that takes them ('stream.changes').
        ours "changes" => changes: Changes = Changes::Refuse;
        /// Source: what the server does when this subscriber does not keep up: `drop` ends it with
        /// an error, `wait` lets the job that writes the stream wait.
        ours "slow" => slow: Slow = Slow::Drop;
        /// Source: how much the server may hold for this subscriber.
        ours "queue-bytes" => queue: Option<ByteSize>;
    }
}

/// The most that may be asked for by `window-bytes`.
const WINDOW_BYTES_MAX: u64 = 16 << 30;

impl FlightOptions {
    /// The options as they were written, checked.
    ///
    /// # Errors
    /// Names the option and what is wrong with it.
    pub fn checked(raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let options = FlightOptions::take(raw)?;
        let wrong = |name, why: &str| Err(ConnectError::new(format!("{}: option '{name}': {why}", raw.owner())));
        if !(1 << 10..=WINDOW_BYTES_MAX).contains(&options.window.0) {
            return wrong("window-bytes", "expected 1 kb to 16 gb");
        }
        if options.backoff.is_zero() || options.backoff > options.backoff_max {
            return wrong("reconnect.backoff", "expected more than nothing and no more than 'reconnect.backoff-max'");
        }
        if options.connect_timeout.is_zero() {
            return wrong("connect-timeout", "expected more than nothing");
        }
        if options.block_rows.is_some_and(|n| n == 0 || n as usize > super::blocks::ROWS_LIMIT) {
            return wrong("sink.block-size", &format!("expected 1 to {} rows", super::blocks::ROWS_LIMIT));
        }
        for (name, given) in [("publisher", &options.publisher), ("name", &options.name)] {
            if given.as_ref().is_some_and(|text| text.trim().is_empty()) {
                return wrong(name, "expected a name");
            }
        }
        if options.from == Some(Start::Now) && options.changes == Changes::Apply {
            return wrong(
                "from",
                "'now' brings changes of rows that never came; with 'changes' = 'apply' begin with 'snapshot' or 'earliest'",
            );
        }
        if options.from == Some(Start::Acknowledged) && options.name.is_none() {
            return wrong("from", "'acknowledged' needs the subscriber's 'name'");
        }
        Ok(options)
    }

    /// A client for the server of these options.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn client(&self) -> Result<Client, ConnectError> {
        Client::new(&ClientOptions {
            url: self.url.clone(),
            token: self.token.clone(),
            ca_file: self.ca_file.clone().map(Into::into),
            insecure: self.insecure,
            connect_timeout: self.connect_timeout,
        })
    }

    /// How to try again.
    pub fn reconnect(&self) -> Reconnect {
        Reconnect { attempts: self.reconnect_attempts, backoff: self.backoff, backoff_max: self.backoff_max }
    }
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// With what comes next.
    #[default]
    Now,
    /// With the current contents, then every change.
    Snapshot,
    /// With the oldest row that the stream's log still has.
    Earliest,
    /// Behind what the subscriber's name has acknowledged.
    Acknowledged,
    /// With the row of this number, counted from the beginning of the stream.
    Offset(u64),
}

impl OptionValue for Start {
    const KIND: &'static str = "`now` `snapshot` `earliest` `acknowledged` or a row number";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text.trim().to_ascii_lowercase().as_str() {
            "now" => Start::Now,
            "snapshot" => Start::Snapshot,
            "earliest" => Start::Earliest,
            "acknowledged" => Start::Acknowledged,
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                Start::Offset(number.replace('_', "").parse().map_err(|_| format!("'{number}' is no row number"))?)
            }
            other => return Err(tidemill_format::options::one_of(other, &["now", "snapshot", "earliest", "acknowledged", "a row number"])),
        })
    }
    fn show(&self) -> Option<String> {
        Some(match self {
            Start::Now => "now".into(),
            Start::Snapshot => "snapshot".into(),
            Start::Earliest => "earliest".into(),
            Start::Acknowledged => "acknowledged".into(),
            Start::Offset(n) => n.to_string(),
        })
    }
}

/// What is subscribed to: the ticket of a DoGet, the first message of a DoExchange.
#[derive(Clone, Debug, Serialize)]
pub struct Request {
    /// The stream's name.
    pub stream: String,
    /// Where to begin.
    pub from: Start,
    /// The subscriber's name, if it acknowledges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `drop` or `wait`.
    pub slow: &'static str,
    /// What the server may hold, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// The most rows of a message; as many as there are at once without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<usize>,
    /// The columns wanted; all without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// A condition in SQL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

impl Request {
    /// What the options of a source ask for, all columns.
    pub fn of(options: &FlightOptions) -> Self {
        let default = match options.name {
            // Changes of rows that came before are of use only to who has them: a checkpoint says where it goes on.
            _ if options.changes == Changes::Apply => Start::Snapshot,
            Some(_) => Start::Acknowledged,
            None => Start::Now,
        };
        Request {
            stream: options.url.stream.clone(),
            from: options.from.unwrap_or(default),
            name: options.name.clone(),
            slow: match options.slow {
                Slow::Drop => "drop",
                Slow::Wait => "wait",
            },
            queue_bytes: options.queue.map(|size| size.0),
            block_size: None,
            columns: None,
            filter: options.filter.clone(),
        }
    }

    /// As it travels.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers")
    }
}

/// How to try again when a connection breaks.
#[derive(Clone, Copy, Debug)]
pub struct Reconnect {
    /// How often; `None` for ever.
    pub attempts: Option<u32>,
    /// Before the first further attempt.
    pub backoff: Duration,
    /// Before any.
    pub backoff_max: Duration,
}

impl Reconnect {
    /// How long to wait before further attempt number `failed`, counted from 1; `None` if that was
    /// the last.
    pub fn pause(&self, failed: u32) -> Option<Duration> {
        if self.attempts.is_some_and(|attempts| failed > attempts) {
            return None;
        }
        let doubled = self.backoff.saturating_mul(1 << (failed.saturating_sub(1)).min(20));
        Some(doubled.min(self.backoff_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(pairs: &[(&str, &str)]) -> RawOptions {
        let url = ("url".to_string(), "flight://localhost:1/trades".to_string());
        RawOptions::new("table 't'", std::iter::once(url).chain(pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()))))
    }

    #[track_caller]
    fn request(pairs: &[(&str, &str)], expect: &str) {
        let options = FlightOptions::checked(&mut raw(pairs)).unwrap();
        assert_eq!(String::from_utf8(Request::of(&options).json()).unwrap(), expect);
    }

    #[track_caller]
    fn bad(pairs: &[(&str, &str)], part: &str) {
        let error = FlightOptions::checked(&mut raw(pairs)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn requests_as_they_travel() {
        request(&[], r#"{"stream":"trades","from":"now","slow":"drop"}"#);
        request(&[("name", "n")], r#"{"stream":"trades","from":"acknowledged","name":"n","slow":"drop"}"#);
        request(
            &[("from", "1_200"), ("slow", "wait"), ("queue-bytes", "1 mb"), ("filter", "a > 1")],
            r#"{"stream":"trades","from":{"offset":1200},"slow":"wait","queue_bytes":1048576,"filter":"a > 1"}"#,
        );
        request(&[("changes", "apply")], r#"{"stream":"trades","from":"snapshot","slow":"drop"}"#);
        request(&[("from", "Snapshot")], r#"{"stream":"trades","from":"snapshot","slow":"drop"}"#);
    }

    #[test]
    fn mistakes_name_the_option() {
        bad(&[("window-bytes", "1")], "'window-bytes': expected 1 kb");
        bad(&[("reconnect.backoff", "10 s")], "'reconnect.backoff'");
        bad(&[("reconnect.backoff", "0 s")], "'reconnect.backoff'");
        bad(&[("sink.block-size", "0")], "'sink.block-size'");
        bad(&[("from", "erliest")], "did you mean 'earliest'?");
        bad(&[("from", "acknowledged")], "needs the subscriber's 'name'");
        bad(&[("name", " ")], "'name': expected a name");
        bad(&[("changes", "keep")], "refuse, as-column, apply");
        bad(&[("changes", "apply"), ("from", "now")], "begin with 'snapshot' or 'earliest'");
        bad(&[("url", "flight://h")], "table 't'");
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_end() {
        let ms = Duration::from_millis;
        let ever = Reconnect { attempts: None, backoff: ms(100), backoff_max: ms(5000) };
        let pauses: Vec<_> = [1, 2, 3, 6, 7, 1000, u32::MAX].iter().map(|n| ever.pause(*n).unwrap().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 3200, 5000, 5000, 5000]);
        let twice = Reconnect { attempts: Some(2), ..ever };
        assert_eq!([1, 2, 3].map(|n| twice.pause(n)), [Some(ms(100)), Some(ms(200)), None]);
        assert_eq!(Reconnect { attempts: Some(0), ..ever }.pause(1), None);
    }
}
