//! Tokens, rights, and where requests may come from.

use std::fs;
use std::time::Duration;

use super::tokens::{parse, sha256};
use super::*;

#[track_caller]
fn access(line: &str) -> Access {
    parse(line).unwrap().remove(0).1
}

#[test]
fn a_digest_is_sha_256() {
    // The first example of FIPS 180-2.
    let hex: String = sha256(b"abc").iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn patterns() {
    #[track_caller]
    fn check(pattern: &str, name: &str, expect: bool) {
        assert_eq!(Pattern::new(pattern).unwrap().matches(name), expect, "{pattern} {name}");
    }
    check("trades", "trades", true);
    check("trades", "trades2", false);
    check("trades", "Trades", false);
    check("tr*", "trades", true);
    check("tr*", "tr", true);
    check("tr*", "t", false);
    check("*", "", true);
    assert!(Pattern::new("a*b").is_err() && Pattern::new("**").is_err() && Pattern::new("").is_err());
}

#[test]
fn rights_are_those_of_the_entry() {
    let a = access(r#"{"token": "t", "name": "feed", "read": ["v*"], "write": ["trades"]}"#);
    assert_eq!((a.may_read("vwap"), a.may_read("trades"), a.may_write("trades"), a.may_write("vwap")), (true, false, true, false));
    assert_eq!((a.may_manage(), a.may_read_all(), a.expired(), a.name()), (false, false, false, "feed"));
    assert_eq!(a.require_read("trades").unwrap_err().status().as_u16(), 403);
    assert_eq!(a.require_manage().unwrap_err().message(), "the token of 'feed' gives no right to manage jobs");
    a.require_write("trades").unwrap();
    let all = Access::all();
    assert!(all.may_read("x") && all.may_write("x") && all.may_manage() && all.may_read_all() && !all.expired());
}

#[test]
fn a_token_expires() {
    let at = |time: &str| access(&format!(r#"{{"token": "t", "name": "n", "read": ["*"], "expires": "{time}"}}"#));
    assert!(at("2001-01-01T00:00:00Z").expired());
    assert!(at("1969-12-31T23:59:59+00:00").expired());
    assert!(!at("2200-01-01T00:00:00.5-05:00").expired());
    assert_eq!(at("2001-01-01T00:00:00Z").require_read("x").unwrap_err().status().as_u16(), 401);
    assert!(!access(r#"{"token": "t", "name": "n", "expires": null}"#).expired());
}

#[test]
fn files_of_either_layout() {
    let digest: String = sha256(b"two").iter().map(|b| format!("{b:02X}")).collect();
    let one = r#"{"token": "one", "name": "a"}"#;
    let two = format!(r#"{{"sha256": "{digest}", "name": "b"}}"#);
    for text in [format!("{one}\n\n{two}\n"), format!(" [{one},\n {two}]")] {
        let tokens = parse(&text).unwrap();
        let found: Vec<_> = tokens.iter().map(|(d, a)| (*d, a.name())).collect();
        assert_eq!(found, [(sha256(b"one"), "a"), (sha256(b"two"), "b")]);
    }
}

#[test]
fn wrong_entries_are_named() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(expect), "{error}");
    }
    let good = r#"{"token": "t", "name": "n"}"#;
    check(&format!("{good}\n{{"), "line 2: ");
    check(&format!("{good}\n{good}"), "line 2: the same token as an earlier one");
    check(&format!("[{good}, {good}]"), "entry 2: the same token as an earlier one");
    check(r#"{"name": "n"}"#, "line 1: expected either 'token' or 'sha256'");
    check(r#"{"token": "t", "sha256": "00", "name": "n"}"#, "line 1: expected either 'token' or 'sha256'");
    check(r#"{"sha256": "00", "name": "n"}"#, "line 1: 'sha256' is not 64 hex digits");
    check(r#"{"token": "", "name": "n"}"#, "line 1: 'token' is empty");
    check(r#"{"token": "t", "name": "n", "raed": []}"#, "line 1: unknown field");
    check(r#"{"token": "t", "name": "n", "read": ["a*b"]}"#, "line 1: 'read': 'a*b': a '*' can only stand at the end");
    check(r#"{"token": "t", "name": "n", "expires": "2030-01-01"}"#, "line 1: 'expires': '2030-01-01' is no time");
    check(r#"{"token": "t", "name": "n", "expires": "2030-01-01T00:00:00"}"#, "line 1: 'expires'");
}

#[test]
fn a_changed_file_is_read_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    fs::write(&path, "{\"token\": \"stays\", \"name\": \"a\"}\n{\"token\": \"goes\", \"name\": \"b\"}\n").unwrap();
    let tokens = Tokens::open(path.clone()).unwrap();
    let (stays, goes) = (tokens.find("stays").unwrap(), tokens.find("goes").unwrap());
    assert!(tokens.find("Stays").is_none() && tokens.find("").is_none());
    // What cannot be read changes nothing.
    fs::write(&path, "{").unwrap();
    tokens.refresh(Duration::ZERO);
    assert!(!goes.expired() && tokens.find("goes").is_some());
    fs::write(&path, "{\"token\": \"stays\", \"name\": \"a\"}\n{\"token\": \"comes\", \"name\": \"c\", \"manage\": true}\n").unwrap();
    tokens.refresh(Duration::ZERO);
    assert!(goes.expired() && !stays.expired());
    assert!(tokens.find("goes").is_none() && tokens.find("comes").unwrap().may_manage() && !tokens.find("stays").unwrap().expired());
    // Other rights are another grant: what runs with the old ones ends.
    fs::write(&path, "{\"token\": \"stays\", \"name\": \"a\", \"read\": [\"*\"]}\n").unwrap();
    tokens.refresh(Duration::ZERO);
    assert!(stays.expired() && tokens.find("stays").unwrap().may_read("x"));
}

#[test]
fn where_a_token_stands() {
    #[track_caller]
    fn check(uri: &str, header: Option<&str>, expect: Result<Option<&str>, u16>) {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        let found = presented(&uri.parse().unwrap(), &headers).map(|t| t.map(Cow::into_owned)).map_err(|e| e.status().as_u16());
        assert_eq!(found, expect.map(|t| t.map(str::to_string)), "{uri} {header:?}");
    }
    check("/v1/jobs", Some("Bearer abc"), Ok(Some("abc")));
    check("/v1/jobs", Some("bearer  abc "), Ok(Some("abc")));
    check("/v1/jobs", Some("Basic abc"), Err(401));
    check("/v1/jobs", Some("Bearer"), Err(401));
    check("/v1/jobs", None, Ok(None));
    // In a query tokens end in logs: only for those who have no other way.
    check("/v1/jobs?token=abc", None, Ok(None));
    check("/v1/streams/s/ws?from=now&token=a%2Fc", None, Ok(Some("a/c")));
    check("/v1/streams/s/events?token=abc", None, Ok(Some("abc")));
    check("/v1/streams/s/events", None, Ok(None));
}

#[test]
fn without_tokens_only_this_machine_asks() {
    #[track_caller]
    fn check(uri: &str, host: Option<&str>, origin: Option<&str>, expect: bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        assert_eq!(from_this_machine(&uri.parse().unwrap(), &headers).is_ok(), expect, "{uri} {host:?} {origin:?}");
    }
    check("/x", Some("127.0.0.1:7733"), None, true);
    check("/x", Some("localhost"), None, true);
    check("/x", Some("[::1]:7733"), None, true);
    check("/x", None, None, true);
    check("http://localhost:1/x", None, None, true);
    check("http://evil.example:1/x", None, None, false);
    check("/x", Some("evil.example:7733"), None, false);
    check("/x", Some("localhost.evil.example"), None, false);
    check("/x", Some("10.0.0.1"), None, false);
    check("/x", Some("localhost:7733"), Some("http://localhost:3000"), true);
    check("/x", Some("localhost:7733"), Some("https://evil.example"), false);
    check("/x", Some("localhost:7733"), Some("null"), false);
}

/// A browser names no origin when a page shows an image or follows a link: any page could subscribe under a name.
#[test]
fn what_names_no_origin_says_whether_a_page_sends_it() {
    #[track_caller]
    fn check(site: &str, mode: &str, origin: Option<&str>, expect: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "127.0.0.1:7733".parse().unwrap());
        headers.insert("sec-fetch-site", site.parse().unwrap());
        headers.insert("sec-fetch-mode", mode.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        assert_eq!(from_this_machine(&"/x".parse().unwrap(), &headers).is_ok(), expect, "{site} {mode} {origin:?}");
    }
    check("cross-site", "no-cors", None, false);
    check("same-site", "no-cors", None, false);
    check("cross-site", "navigate", None, false);
    check("none", "navigate", None, true);
    check("same-origin", "cors", None, true);
    // Pages of another port of this machine, by the one name or the other.
    check("same-site", "cors", Some("http://127.0.0.1:3000"), true);
    check("cross-site", "cors", Some("http://localhost:3000"), true);
    check("cross-site", "websocket", Some("https://evil.example"), false);
}
