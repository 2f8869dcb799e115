//! Tests of `url`.

use super::*;

#[track_caller]
fn good(text: &str, tls: bool, host: &str, port: u16, stream: &str) {
    let url = StreamUrl::parse(text).unwrap();
    assert_eq!(url, StreamUrl { tls, host: host.into(), port, stream: stream.into() });
    assert_eq!(StreamUrl::parse(&url.to_string()).unwrap(), url, "what is shown can be read");
}

#[track_caller]
fn bad(text: &str, part: &str) {
    let why = StreamUrl::parse(text).unwrap_err();
    assert!(why.contains(part), "{text}: {why}");
}

#[test]
fn addresses() {
    good("flight://localhost:8815/trades", false, "localhost", 8815, "trades");
    good(" FLIGHT+TLS://h.example.org:1/a.b-c/ ", true, "h.example.org", 1, "a.b-c");
    good("flight://[::1]:8815/t", false, "::1", 8815, "t");
    good("flight://h:65535/my%20str%C3%A4ng%2F1", false, "h", 65535, "my sträng/1");
}

#[test]
fn mistakes_are_named() {
    bad("localhost:8815/trades", "expected flight://");
    bad("grpc://h:1/t", "there is no scheme 'grpc'");
    bad("flight://h:1", "name of the stream is missing");
    bad("flight://h:1/", "expected one name");
    bad("flight://h:1/a/b", "expected one name");
    bad("flight://h/t", "host or the port is missing");
    bad("flight://:1/t", "host or the port is missing");
    bad("flight://::1:1/t", "host or the port is missing");
    bad("flight://[::1]/t", "no address and port");
    bad("flight://h:0/t", "no port");
    bad("flight://h:70000/t", "no port");
    bad("flight://me:secret@h:1/t", "pass a token");
    bad("flight://h:1/t?from=now", "nothing may follow");
    bad("flight://h:1/%zz", "not well encoded");
    bad("flight://h h:1/t", "no name of a host");
}

#[test]
fn what_stays_on_the_machine() {
    for (text, expect) in [
        ("flight://localhost:1/t", true),
        ("flight://127.0.0.5:1/t", true),
        ("flight://[::1]:1/t", true),
        ("flight://10.0.0.1:1/t", false),
        ("flight://localhost.example.org:1/t", false),
    ] {
        assert_eq!(StreamUrl::parse(text).unwrap().is_loopback(), expect, "{text}");
    }
}
