//! Tests of `options`.

use super::*;

fn raw(pairs: &[(&str, &str)]) -> RawOptions {
    RawOptions::new("table 't'", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))
}

#[track_caller]
fn bad_source(more: &[(&str, &str)], expect: &str) {
    let pairs: Vec<_> = [("port", "1")].into_iter().chain(more.iter().copied()).collect();
    let error = HttpOptions::checked_source(&mut raw(&pairs)).unwrap_err().to_string();
    assert!(error.starts_with("table 't': option '") && error.contains(expect), "{error}");
}

#[track_caller]
fn bad_sink(more: &[(&str, &str)], expect: &str) {
    let pairs: Vec<_> = [("url", "http://h/")].into_iter().chain(more.iter().copied()).collect();
    let error = HttpOptions::checked_sink(&mut raw(&pairs)).unwrap_err().to_string();
    assert!(error.starts_with("table 't': option '") && error.contains(expect), "{error}");
}

#[test]
fn mistakes_name_the_option() {
    bad_source(&[("path", "trades")], "'path': expected a path such as");
    bad_source(&[("max-body-size", "0")], "'max-body-size': expected 1 byte");
    bad_source(&[("queue.bytes", "4 gb")], "'queue.bytes': expected");
    bad_source(&[("answer", "comit")], "did you mean 'commit'?");
    bad_source(&[("url", "http://h/")], "'url': a table that is read");
    bad_source(&[("token", " ")], "'token': expected a token");
    bad_source(&[("request.timeout", "0 s")], "'request.timeout'");
    bad_source(&[("listener.max-connections", "0")], "expected 1 to 1000000");
    bad_source(&[("hostname", "0.0.0.0")], "'hostname' = '0.0.0.0': other machines reach");
    bad_source(&[("hostname", "0.0.0.0"), ("token", "t")], "set 'listen.insecure' = 'true'");
    HttpOptions::checked_source(&mut raw(&[("port", "1"), ("hostname", "::"), ("listen.insecure", "true")])).unwrap();
    bad_sink(&[("port", "1")], "'port': a table that is written");
    bad_sink(&[("batch.rows", "0")], "'batch.rows'");
    bad_sink(&[("batch.bytes", "0")], "'batch.bytes'");
    bad_sink(&[("requests.parallel", "65")], "expected 1 to 64");
    bad_sink(&[("retry.backoff", "1 min")], "no more than 'retry.backoff-max'");
    bad_sink(&[("method", "get")], "POST, PUT, PATCH");
    let error = HttpOptions::checked_source(&mut raw(&[])).unwrap_err().to_string();
    assert_eq!(error, "table 't': option 'port' is required to read: the port to listen on");
    let error = HttpOptions::checked_sink(&mut raw(&[])).unwrap_err().to_string();
    assert_eq!(error, "table 't': option 'url' is required to write: where rows are sent");
}
