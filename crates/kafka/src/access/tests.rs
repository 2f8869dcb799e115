//! Connections to a broker of a few lines that shows a certificate for `localhost` (valid from 2020 to 2120; its key is no
//! secret) and lets in whoever says a password.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tidemill_format::options::{OptionSet, RawOptions};

use super::*;
use crate::options::CommonOptions;
use crate::transaction::wire::Broker;

const AUTHORITY: &[u8] = include_bytes!("tests/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("tests/broker.pem");
const KEY: &[u8] = include_bytes!("tests/broker.key");
/// Of an authority that has signed nothing.
const STRANGER: &[u8] = include_bytes!("tests/stranger.pem");

/// Takes so many connections, one after the other: its port, and what it was asked.
fn broker(connections: usize) -> (u16, JoinHandle<Vec<Vec<u8>>>) {
    // No error, and no other mechanisms; no error, no text, no token; one broker: its number, `h`, 9092, no rack.
    const ANSWERS: [&[u8]; 3] = [b"\0\0\0\0\0\0", b"\0\0\xff\xff\0\0\0\0", b"\0\0\0\x01\0\0\0\x07\0\x01h\0\0\x23\x84\xff\xff"];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for _ in 0..connections {
            let (socket, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), socket);
            for body in ANSWERS {
                let mut length = [0; 4];
                if stream.read_exact(&mut length).is_err() {
                    // Who does not trust it hangs up.
                    break;
                }
                let mut request = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut request).unwrap();
                let answer = [&request[4..8], body].concat();
                stream.write_all(&[&(answer.len() as u32).to_be_bytes()[..], &answer].concat()).unwrap();
                stream.flush().unwrap();
                asked.push(request);
            }
        }
        asked
    });
    (port, thread)
}

fn access(roots: &[u8]) -> Access {
    let login = Login { mechanism: Mechanism::Plain, user: "me".into(), password: "se cret".into() };
    Access { timeout: Duration::from_secs(30), tls: Some(Tls::new(roots, None).unwrap()), login: Some(login) }
}

#[test]
fn a_login_over_an_encrypted_connection() {
    let (port, thread) = broker(3);
    let refused = |host: &str, roots: &[u8]| Broker::connect(&format!("{host}:{port}"), &access(roots)).err().unwrap();
    let error = refused("localhost", STRANGER);
    assert!(error.contains("encryption") && error.contains("'properties.ssl.ca.location'"), "{error}");
    let error = refused("127.0.0.1", AUTHORITY);
    assert!(error.contains("encryption") && error.contains("127.0.0.1"), "a certificate for another name: {error}");
    let mut broker = Broker::connect(&format!("localhost:{port}"), &access(AUTHORITY)).unwrap();
    assert_eq!(broker.brokers(), Ok(vec!["h:9092".to_string()]));
    assert!(broker.into_socket().unwrap_err().contains("librdkafka"));
    let asked = thread.join().unwrap();
    // Key and version of each, then number and client.
    let kinds: Vec<&[u8]> = asked.iter().map(|request| &request[..4]).collect();
    assert_eq!(kinds, [[0, 17, 0, 1], [0, 36, 0, 0], [0, 3, 0, 1]]);
    assert!(asked[0].ends_with(b"\0\x05PLAIN") && asked[1].ends_with(b"\0me\0se cret"), "{asked:?}");
}

#[test]
fn certificates_that_are_none() {
    let why = |roots: &[u8], own: Option<(&[u8], &[u8])>| Tls::new(roots, own).err().unwrap();
    assert!(why(KEY, None).contains("no certificate to trust"));
    assert!(why(AUTHORITY, Some((CERTIFICATE, AUTHORITY))).contains("the own key"));
    // It is the key of another.
    assert!(why(AUTHORITY, Some((STRANGER, KEY))).contains("the own certificate and its key"));
    assert!(Tls::new(AUTHORITY, Some((CERTIFICATE, KEY))).is_ok());
}

/// librdkafka takes these properties only where it is built with TLS.
#[test]
fn settings() {
    if !cfg!(feature = "ssl") {
        return;
    }
    let file = |name: &str| format!("{}/src/access/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    let authority = file("authority.pem");
    let access = |pairs: &[(&str, &str)]| {
        let own = [("properties.bootstrap.servers", "h:1"), ("properties.security.protocol", "SASL_SSL")];
        let login = [("properties.sasl.username", "me"), ("properties.sasl.password", "p")];
        let all = own.iter().chain(&login).chain(pairs).map(|(k, v)| (k.to_string(), v.to_string()));
        let mut raw = RawOptions::new("table 't'", all);
        let common = CommonOptions::take(&mut raw).unwrap();
        Access::of(&Connection::take(&common, &mut raw).unwrap())
    };
    let scram = ("properties.sasl.mechanism", "SCRAM-SHA-512");
    let trusted = ("properties.ssl.ca.location", authority.as_str());
    let found = access(&[scram, trusted]).unwrap_or_else(|e| panic!("{e}"));
    assert!(found.encrypts());
    assert_eq!(found.login().map(Login::mechanism), Some("SCRAM-SHA-512"));
    let check = |pairs: &[(&str, &str)], expect: &str| {
        let error = access(pairs).err().unwrap().to_string();
        assert!(error.contains(expect) && error.contains("'exactly-once'"), "{error}");
    };
    check(&[trusted], "'properties.sasl.mechanism' = 'GSSAPI'");
    check(&[scram, trusted, ("properties.enable.ssl.certificate.verification", "false")], "ssl.certificate.verification");
    check(&[scram, trusted, ("properties.ssl.key.location", &file("broker.key"))], "need each other");
    check(&[scram, ("properties.ssl.ca.location", "/nowhere.pem")], "/nowhere.pem");
    check(&[scram, trusted, ("properties.ssl.cipher.suites", "ALL")], "'properties.ssl.cipher.suites'");
}
