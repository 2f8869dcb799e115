//! Tests of `open`.

use super::*;

#[test]
fn versions_tell_what_is_known() {
    for (version, expect) in [
        ("8.0.19", true),
        ("8.4.3-log", true),
        ("9.1.0", true),
        ("8.0.18", false),
        ("5.7.44-log", false),
        ("10.11.19-MariaDB-0+deb12u1", false),
        ("", false),
    ] {
        assert_eq!(has_row_alias(version), expect, "{version}");
    }
}

#[test]
fn urls_are_understood() {
    let of = |text: &str| Settings::of(&Url::parse(text).unwrap());
    let settings = of("mysql://[::1]/d?allowLoadLocalInfile=false&useSSL=false&serverTimezone=UTC").unwrap();
    assert_eq!((settings.host.as_str(), settings.port, settings.local_infile), ("[::1]", 3306, false));
    assert_eq!(settings.ssl_mode, SslMode::Disable);
    assert_eq!(of("mysql://h/d?useSSL=false&sslMode=verify-full").unwrap().ssl_mode, SslMode::VerifyFull);
    let error = of("mysql://h/d?local-infile=maybe").err().unwrap();
    assert_eq!(error.message, "option 'url': local-infile=maybe: expected true or false");
}

#[test]
fn a_server_that_is_not_there_is_a_connection_error_without_the_password() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = Url::parse(&format!("mysql://user:hidden@127.0.0.1:{port}/d")).unwrap();
    let error = open(&Settings::of(&url).unwrap(), Duration::from_secs(5)).err().unwrap();
    assert_eq!(error.kind, crate::driver::DbErrorKind::Connection);
    assert!(error.message.contains(&port.to_string()) && !error.message.contains("hidden"), "{}", error.message);
}
