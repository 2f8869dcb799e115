//! What clients make of refusals: a kind, the server's own words, and what to do.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::Scheme;
use crate::error::{Kind, StoreError};

/// How much of a server's own words goes into a message, characters.
const REASON_CHARS: usize = 240;

impl StoreError {
    /// An error of the client library while `doing` something.
    pub(crate) fn of(doing: impl fmt::Display, scheme: Scheme, error: &object_store::Error) -> Self {
        use object_store::Error as E;
        let text = whole_text(error);
        let status = status_in(&text);
        let no_credentials = ["metadata.google.internal", "169.254.169.254", "169.254.170.2"].iter().any(|a| text.contains(a));
        let kind = match error {
            E::NotFound { .. } => Kind::NotFound,
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => Kind::Denied,
            E::Precondition { .. } | E::NotModified { .. } => Kind::Changed,
            E::AlreadyExists { .. } => Kind::Exists,
            E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } | E::UnknownConfigurationKey { .. } => Kind::Other,
            _ if no_credentials => Kind::Denied,
            _ => match status {
                Some(status) => kind_of(status),
                None if text.contains("HTTP error") || text.contains("error sending request") => Kind::Network,
                None => Kind::Other,
            },
        };
        let reason = if no_credentials { "no credentials were found, and this is no machine of the cloud" } else { reason(&text) };
        Self::explain(doing, scheme, kind, status, reason)
    }

    /// An error with the advice that goes with its kind.
    pub(crate) fn explain(doing: impl fmt::Display, scheme: Scheme, kind: Kind, status: Option<u16>, reason: &str) -> Self {
        let what = match kind {
            Kind::NotFound => "there is no such bucket or object",
            Kind::Denied => "access was denied",
            Kind::Busy => "the service says that there are too many requests",
            Kind::Server => "the service failed",
            Kind::Network => "the connection failed",
            Kind::Changed => "the object has changed since it was listed",
            Kind::Exists => "there is such an object already",
            Kind::Other => "the request failed",
        };
        let advice = match (kind, scheme) {
            (Kind::NotFound, _) => "check the spelling of bucket and path (upper and lower case differ)",
            (Kind::Denied, Scheme::Google) => {
                "run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS or 'store.credentials-file' to a key \
                 file whose account has the role Storage Object User; for a public bucket set 'store.anonymous' = 'true'"
            }
            (Kind::Denied, Scheme::S3) => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or 'store.access-key' and 'store.secret-key', and check \
                 the region (AWS_REGION, 'store.region') and the user's policy; for a public bucket set 'store.anonymous' = 'true'"
            }
            (Kind::Denied, Scheme::Azure) => {
                "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN, or a service principal's \
                 AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET), or 'store.account' and 'store.secret-key'"
            }
            (Kind::Denied, Scheme::Http) => "the server wants a login, or a signed URL that has not run out",
            (Kind::Busy, _) => "lower 'store.parallel', raise 'store.retries', or try again later",
            (Kind::Server | Kind::Network, Scheme::Http) => "check the address, raise 'store.retries', or try again later",
            (Kind::Server, _) => "try again later, or raise 'store.retries'",
            (Kind::Network, _) => "check the network, proxies and 'store.endpoint', or raise 'store.retries' or 'store.timeout'",
            (Kind::Changed, _) => "read it again when nobody writes it any more",
            (Kind::Exists, _) => "choose another name, or remove it",
            (Kind::Other, Scheme::S3) if reason.contains("redirect") => {
                "the bucket lies in another region: set AWS_REGION or 'store.region'"
            }
            (Kind::Other, _) => "",
        };
        let status = status.map_or(String::new(), |s| format!(" (status {s})"));
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
        StoreError::new(kind, format!("{doing}: {what}{status}{reason}{advice}"))
    }
}

/// A time as messages have it: in seconds, or where it is shorter than one, in milliseconds.
pub(crate) fn shown(time: Duration) -> String {
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { format!("{} s", time.as_secs_f64()) }
}

/// What an HTTP status that is no success means.
pub(crate) fn kind_of(status: u16) -> Kind {
    match status {
        401 | 403 => Kind::Denied,
        404 | 410 => Kind::NotFound,
        409 => Kind::Exists,
        412 | 416 => Kind::Changed,
        429 => Kind::Busy,
        500..=599 => Kind::Server,
        _ => Kind::Other,
    }
}

/// An error's text with what lies at its root, which the library's own texts leave out.
fn whole_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

/// The status that the text of an error names: the library keeps it nowhere else.
fn status_in(text: &str) -> Option<u16> {
    let at = text.find("status code: ")? + "status code: ".len();
    text.get(at..at + 3)?.parse().ok()
}

/// What the server said, without the library's account of the request.
fn reason(text: &str) -> &str {
    let said = match (text.find("<Message>"), text.find("</Message>")) {
        (Some(from), Some(to)) if from < to => &text[from + "<Message>".len()..to],
        _ => text.rsplit_once(" - ").map_or(text, |(_, said)| said),
    };
    let said = said.strip_prefix("Server returned non-2xx status code: ").unwrap_or(said).trim();
    said.char_indices().nth(REASON_CHARS).map_or(said, |(end, _)| &said[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, status: Option<u16>, expect: &str) {
        assert_eq!(status_in(text), status);
        assert_eq!(reason(text), expect);
    }

    #[test]
    fn what_the_server_said() {
        let long = "Generic GCS error: Error performing GET http://h/b/k in 3ms, after 2 retries, max_retries: 2, retry_timeout: 180s  - \
                    Server returned non-2xx status code: 503 Service Unavailable: \
                    <Error><Code>SlowDown</Code><Message>slow down</Message></Error>";
        check(long, Some(503), "slow down");
        let short = "Error performing PUT http://h in 1ms - Server returned non-2xx status code: 403 Forbidden: no";
        check(short, Some(403), "403 Forbidden: no");
        check("something else", None, "something else");
    }

    #[test]
    fn times_have_units_in_which_they_are_something() {
        let shown_ms = |ms| shown(Duration::from_millis(ms));
        assert_eq!([60_000, 1_500, 1_000, 999, 200].map(shown_ms), ["60 s", "1.5 s", "1 s", "999 ms", "200 ms"]);
    }

    #[test]
    fn advice_names_what_to_set() {
        let error = StoreError::explain("reading 's3://b/k'", Scheme::S3, Kind::Denied, Some(403), "");
        assert!(error.to_string().starts_with("reading 's3://b/k': access was denied (status 403); set AWS_ACCESS_KEY_ID"), "{error}");
        let error = StoreError::explain("listing 's3://b'", Scheme::S3, Kind::Other, None, "Received redirect without LOCATION");
        assert!(error.to_string().contains("'store.region'"), "{error}");
    }
}
