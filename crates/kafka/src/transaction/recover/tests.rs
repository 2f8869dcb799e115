//! Tests of `recover`.

use std::io::{Read, Write};
use std::net::TcpListener;

use tidemill_format::options::{OptionSet, RawOptions};

use super::*;
use crate::options::CommonOptions;

/// Answers what `ongoing` asks: it is reading its log at first, then has two transactions. Gives the
/// requests for lists.
fn broker() -> (String, std::thread::JoinHandle<Vec<Vec<u8>>>) {
    const VERSIONS: &[u8] = &[0, 0, 0, 0, 0, 1, 0, 66, 0, 0, 0, 2];
    const LOADING: &[u8] = &[0, 0, 0, 0, 0, 0, 14, 1, 1, 0];
    // Tags, throttling, no error, no unknown filters, two transactions.
    const LIST: &[u8] = b"\0\0\0\0\0\0\0\x01\x03\x04p-0\0\0\0\0\0\0\0\x07\x08Ongoing\0\x04p-1\0\0\0\0\0\0\0\x08\x0fCompleteCommit\0\0";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for list in [LOADING, LIST] {
            let (mut stream, _) = listener.accept().unwrap();
            for body in [VERSIONS, list] {
                let mut length = [0; 4];
                stream.read_exact(&mut length).unwrap();
                let mut request = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut request).unwrap();
                let answer = [&request[4..8], body].concat();
                stream.write_all(&(answer.len() as u32).to_be_bytes()).unwrap();
                stream.write_all(&answer).unwrap();
                if request[..2] == [0, 66] {
                    asked.push(request);
                }
            }
        }
        asked
    });
    (address, thread)
}

/// A coordinator that has just started says so for a while: that must not fail the job.
#[test]
fn open_transactions_are_listed_when_the_broker_has_read_its_log() {
    let (address, thread) = broker();
    let options = [("properties.bootstrap.servers".to_string(), address.clone())];
    let mut raw = RawOptions::new("table 't'", options);
    let common = CommonOptions::take(&mut raw).unwrap();
    let access = Access::of(&Connection::take(&common, &mut raw).unwrap()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    assert_eq!(ongoing(&address, &access, deadline), Ok(vec!["p-0".to_string()]));
    // Key, version, number; the client's id in the old form, tags; two empty filters, tags.
    let request = [&[0, 66, 0, 0, 0, 0, 0, 2, 0, 8][..], b"tidemill", &[0, 1, 1, 0]].concat();
    assert_eq!(thread.join().unwrap(), [request.clone(), request]);
}
