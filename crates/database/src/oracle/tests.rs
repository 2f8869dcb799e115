//! The driver as a whole, as far as it goes without a server of Oracle's: what a URL asks for, and what comes of
//! connecting to who is not there, is something else, or says no.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::Settings;
use crate::driver::{Connection, DbError, DbErrorKind};
use crate::url::Url;

const TIMEOUT: Duration = Duration::from_secs(20);
const PASSWORD: &str = "h1dden";
/// Types of packets.
const ACCEPT: u8 = 2;
const REFUSE: u8 = 4;

fn connect(place: &str, timeout: Duration) -> Result<Box<dyn Connection>, DbError> {
    let url = Url::parse(&format!("jdbc:oracle:thin:@{place}?user=u&password={PASSWORD}")).unwrap();
    super::driver(&url)?.connect(timeout)
}

/// A server that deals with each connection in turn; the first is the one that only asks who is there.
fn serve(deal: impl Fn(usize, TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            deal(number, stream);
        }
    });
    address
}

/// Reads what connects, sends `answer`, and waits for the other side to go.
fn answer(mut stream: TcpStream, answer: &[u8]) {
    let mut asked = [0; 8];
    if stream.read_exact(&mut asked).is_ok() && stream.write_all(answer).is_ok() {
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    }
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() + 8) as u16;
    [&length.to_be_bytes()[..], &[0, 0, kind, 0, 0, 0], body].concat()
}

/// A listener's refusal, with its number; 0 is what it says to who only asks.
fn refusal(number: u32) -> Vec<u8> {
    let text = format!("(DESCRIPTION=(TMP=)(VSNNUM=318767104)(ERR={number})(ALIAS=LISTENER))");
    packet(REFUSE, &[&[0, 0][..], &(text.len() as u16).to_be_bytes(), text.as_bytes()].concat())
}

#[track_caller]
fn check(place: &str, timeout: Duration, kind: DbErrorKind, expect: &[&str]) {
    let Err(error) = connect(place, timeout) else { panic!("{place} was connected to") };
    assert_eq!(error.kind, kind, "{error}");
    expect.iter().for_each(|text| assert!(error.message.contains(text), "{error}"));
    assert!(!error.message.contains(PASSWORD), "{error}");
}

#[test]
fn nobody_is_there() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check(&format!("//{address}/shop"), TIMEOUT, DbErrorKind::Connection, &[format!("connecting to {address}").as_str(), "refused"]);
    // Two dots in a row are no name of any host.
    check("//no..host:1521/shop", TIMEOUT, DbErrorKind::Connection, &["connecting to no..host:1521"]);
}

#[test]
fn somebody_else_is_there() {
    let address = serve(|_, stream| answer(stream, b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    check(&format!("//{address}/shop"), TIMEOUT, DbErrorKind::Fatal, &["no Oracle listener", "check host and port"]);
    let address = serve(|_, stream| answer(stream, &[0x15, 3, 3, 0, 2, 2, 40]));
    check(&format!("{address}/shop"), TIMEOUT, DbErrorKind::Fatal, &["no Oracle listener", "TLS"]);
}

#[test]
fn somebody_hangs_up() {
    let address = serve(|_, stream| drop(stream));
    check(&format!("//{address}/shop"), TIMEOUT, DbErrorKind::Connection, &[format!("connecting to {address}").as_str()]);
}

#[test]
fn somebody_is_silent() {
    let (sender, streams) = std::sync::mpsc::channel();
    let address = serve(move |_, stream| {
        let _ = sender.send(stream);
    });
    check(&format!("//{address}/shop"), Duration::from_millis(200), DbErrorKind::Connection, &["did not answer in time"]);
    drop(streams);
}

#[test]
fn the_listener_says_no() {
    #[track_caller]
    fn says(number: u32, place: impl Fn(SocketAddr) -> String, kind: DbErrorKind, expect: &[&str]) {
        let address = serve(move |turn, stream| answer(stream, &refusal(if turn == 0 { 0 } else { number })));
        check(&place(address), TIMEOUT, kind, expect);
    }
    let service = |address: SocketAddr| format!("//{address}/shop");
    says(12514, service, DbErrorKind::Connection, &["ORA-12514", "'shop'", "check the service"]);
    says(12505, |address| format!("{address}:SHOP"), DbErrorKind::Connection, &["ORA-12505", "'SHOP'", "check the SID"]);
    says(12519, service, DbErrorKind::Connection, &["ORA-12519"]);
}

/// Once it has agreed the server goes away, before anybody has logged in.
#[test]
fn the_server_goes_away() {
    // Version 12; sizes and flags.
    let accepted = packet(ACCEPT, &[&315u16.to_be_bytes()[..], &[0; 22], &8192u32.to_be_bytes()].concat());
    let address = serve(move |turn, stream| answer(stream, &if turn == 0 { refusal(0) } else { accepted.clone() }));
    check(&format!("//{address}/shop"), TIMEOUT, DbErrorKind::Connection, &["closed the connection"]);
}

/// The driver panicked at a packet that it does not know, and the job with it.
#[test]
fn the_driver_gives_up() {
    let address = serve(|turn, stream| answer(stream, &if turn == 0 { refusal(0) } else { packet(99, &[]) }));
    check(&format!("//{address}/shop"), TIMEOUT, DbErrorKind::Fatal, &["no Oracle database"]);
}

fn settings(url: &str) -> Result<Settings, DbError> {
    Settings::of(&Url::parse(url).unwrap())
}

#[test]
fn the_driver_is_told_where_the_database_is() {
    #[track_caller]
    fn check(place: &str, expect: &str) {
        let Ok(settings) = settings(&format!("jdbc:oracle:thin:u/p@{place}")) else { panic!("{place} was refused") };
        assert_eq!(settings.descriptor, expect);
    }
    check("//db/shop", "(DESCRIPTION=(RETRY_DELAY=0)(ADDRESS=(PROTOCOL=tcp)(HOST=db)(PORT=1521))(CONNECT_DATA=(SERVICE_NAME=shop)))");
    check("db:1522:ORCL", "(DESCRIPTION=(RETRY_DELAY=0)(ADDRESS=(PROTOCOL=tcp)(HOST=db)(PORT=1522))(CONNECT_DATA=(SID=ORCL)))");
    check(
        "tcps://db:2484/shop:dedicated",
        "(DESCRIPTION=(RETRY_DELAY=0)(ADDRESS=(PROTOCOL=tcps)(HOST=db)(PORT=2484))(CONNECT_DATA=(SERVICE_NAME=shop)(SERVER=dedicated)))",
    );
    check(
        "//db/shop?ssl-mode=verify-full",
        "(DESCRIPTION=(RETRY_DELAY=0)(ADDRESS=(PROTOCOL=tcps)(HOST=db)(PORT=1521))(CONNECT_DATA=(SERVICE_NAME=shop)))",
    );
    check("(DESCRIPTION=(ADDRESS=(HOST=a)))", "(DESCRIPTION=(ADDRESS=(HOST=a)))");
}

#[test]
fn mistakes_are_named() {
    #[track_caller]
    fn check(url: &str, expect: &str) {
        let Err(error) = settings(url) else { panic!("{url} was taken") };
        assert!(error.kind == DbErrorKind::Fatal && error.message.contains(expect), "{error}");
        assert!(!error.message.contains(PASSWORD), "{error}");
    }
    check("oracle:thin:@//db/shop", "'username'");
    check("oracle:thin:u@//db/shop", "'password'");
    check("oracle:thin:u/h1dden@//db/shop?colour=red", "'colour'");
    check("oracle://db/shop?user=u&password=x&h1dden=x", "behind the password (an '&'");
    check("oracle://db/shop?user=u&password=x&names=h1dden", "names: expected");
    check("oracle://db/shop?user=u&password=x&oracle.jdbc.ReadTimeout=h1dden", "oracle.jdbc.ReadTimeout: expected");
    check("oracle:thin:u/h1dden@//db/shop?names=lower", "expected upper or exact");
    check("oracle:thin:u/h1dden@//db/shop?empty-text=x", "expected error or null");
    check("oracle:thin:u/h1dden@//db/shop?ssl-mode=require", "disable or verify-full");
    check("oracle:thin:u/h1dden@tcps://db/shop?ssl-mode=disable", "rules out");
    check("oracle:thin:u/h1dden@//db/shop:often", "dedicated, pooled, shared");
    check("oracle:thin:u/h1dden@//db/shop?oracle.jdbc.ReadTimeout=soon", "milliseconds");
    assert!(settings("oracle:thin:u/h1dden@//db/shop?oracle.net.CONNECT_TIMEOUT=5&names=exact&empty-text=null").is_ok());
}
