//! A connection to a server: address, encryption, token, and what its errors mean.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, FlightInfo};
use futures::Stream;
use serde::Deserialize;
use tidemill_connect::ConnectError;
use tidemill_connect::certificates::trusted;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use super::body::Publishing;
use crate::runtime;
use crate::url::StreamUrl;

/// Where a token is looked for when none is given.
pub const TOKEN_VARIABLE: &str = "TIDEMILL_TOKEN";

/// The largest message taken from a server: twice the largest that our server sends.
pub(super) const MESSAGE_BYTES_MAX: usize = 128 << 20;
/// What may be on its way to us on one connection before we take it: at 1 GB/s that is 16 ms.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// The same for each stream.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The largest piece of a message that the peer may send at once.
const FRAME_BYTES: u32 = 1 << 20;
/// How often a silent peer is asked whether it is still there, and how long it may take to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a single question may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client needs to know.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The server, and a stream of it for messages.
    pub url: StreamUrl,
    /// The token; [`TOKEN_VARIABLE`] is looked at without.
    pub token: Option<String>,
    /// Certificates to trust; the system's without.
    pub ca_file: Option<PathBuf>,
    /// Sends the token in the clear even to another machine.
    pub insecure: bool,
    /// How long an attempt to connect may take.
    pub connect_timeout: Duration,
}

impl ClientOptions {
    /// The usual for this address.
    pub fn new(url: StreamUrl) -> Self {
        ClientOptions { url, token: None, ca_file: None, insecure: false, connect_timeout: Duration::from_secs(5) }
    }
}

/// A client of one server; clones share the connection, which is made when it is first needed and
/// again after it has broken.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    bearer: Option<MetadataValue<Ascii>>,
    place: Arc<str>,
    stream: Arc<str>,
}

impl Client {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// A certificate file that cannot be read, a token that cannot be sent.
    pub fn new(options: &ClientOptions) -> Result<Self, ConnectError> {
        let url = &options.url;
        let place = url.to_string();
        let token = options.token.clone().or_else(|| env::var(TOKEN_VARIABLE).ok()).filter(|t| !t.is_empty());
        let bearer = token.map(|token| bearer(&token)).transpose().map_err(|e| e.at(&place))?;
        if bearer.is_some() && !url.tls && !url.is_loopback() && !options.insecure {
            return Err(ConnectError::new(format!(
                "{place}: the token would travel unencrypted to another machine; use flight+tls://, or allow it with 'insecure' = 'true'"
            )));
        }
        let scheme = if url.tls { "https" } else { "http" };
        let wrong = |e: tonic::transport::Error| ConnectError::new(format!("{place}: {}", chain(&e)));
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", url.authority()))
            .map_err(wrong)?
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES);
        if url.tls {
            let pem = certificates(options.ca_file.as_deref())?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)).timeout(options.connect_timeout);
            endpoint = endpoint.tls_config(tls).map_err(wrong)?;
        } else if options.ca_file.is_some() {
            return Err(ConnectError::new(format!("{place}: a file of certificates is of use with flight+tls:// only")));
        }
        // The connection's tasks go to the runtime that is entered here.
        let _entered = runtime::handle()?.enter();
        Ok(Client { channel: endpoint.connect_lazy(), bearer, place: place.as_str().into(), stream: url.stream.as_str().into() })
    }

    /// The address, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The stream's name.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The protocol's calls.
    pub(crate) fn flight(&self) -> FlightServiceClient<Channel> {
        FlightServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The call of a publisher who sends these messages: whatever its request gives is not sent.
    pub(super) fn publishing<S>(&self, messages: S) -> FlightServiceClient<Publishing>
    where
        S: Stream<Item = FlightData> + Send + Unpin + 'static,
    {
        FlightServiceClient::new(Publishing::new(self.channel.clone(), messages))
    }

    /// A request with the token.
    pub(crate) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }

    /// What the server says about the stream.
    pub(crate) async fn info(&self) -> Result<StreamInfo, Trouble> {
        let descriptor = || FlightDescriptor::new_path(vec![self.stream.to_string()]);
        let trouble = |status: Status| Trouble::of("asking about the stream", &status);
        let ask = async {
            let answer = self.flight().get_flight_info(self.request(descriptor())).await;
            let mut info = match answer {
                Ok(answer) => StreamInfo::of(answer.into_inner())?,
                Err(status) if status.code() == Code::Unimplemented => StreamInfo::default(),
                Err(status) => return Err(trouble(status)),
            };
            if info.schema.is_none() {
                let answer = self.flight().get_schema(self.request(descriptor())).await.map_err(trouble)?;
                let schema = Schema::try_from(answer.into_inner()).map_err(|e| Trouble::protocol(format!("the stream's schema: {e}")))?;
                info.schema = Some(schema.into());
            }
            Ok(info)
        };
        tokio::time::timeout(CALL_TIMEOUT, ask).await.unwrap_or_else(|_| Err(Trouble::silent("asking about the stream")))
    }

    /// What the server says about the stream; waits until it answers, tries again while it is away.
    ///
    /// # Errors
    /// The server's refusal, or that it was not there as often as `reconnect` allows; it was cancelled.
    pub fn describe(&self, reconnect: super::options::Reconnect, cancelled: Arc<AtomicBool>) -> Result<StreamInfo, ConnectError> {
        let client = self.clone();
        runtime::wait(async move {
            let mut tries = Tries::new(reconnect);
            loop {
                if cancelled.load(Ordering::Relaxed) {
                    return Err(ConnectError::new(format!("{}: stopped while waiting for the server", client.place)));
                }
                match client.info().await {
                    Ok(info) => return Ok(info),
                    Err(trouble) => match tries.again(&client.place, &trouble) {
                        Ok(pause) => tokio::time::sleep(pause).await,
                        Err(error) => return Err(error),
                    },
                }
            }
        })?
    }
}

/// What is known of a stream. A server of another make may say no more than the columns.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StreamInfo {
    /// The columns, those of the outlet if there is one.
    #[serde(skip)]
    pub schema: Option<SchemaRef>,
    /// How rows reach subscribers: `live` or `exactly-once`.
    delivery: Option<String>,
    /// Whether a job writes the stream, so that the columns are those of the outlet; `None` if the server does not say.
    subscribe: Option<bool>,
    /// Whether rows are updated and deleted.
    updating: Option<bool>,
    /// Whether its contents can be asked for.
    pub snapshot: bool,
    /// Whether publishers may say what rows do.
    pub changes: bool,
    /// The columns that the job uses which reads it; all if the server does not say.
    pub wanted: Option<Vec<String>>,
}

impl StreamInfo {
    fn of(info: FlightInfo) -> Result<Self, Trouble> {
        // Nothing there, or nothing of ours, is no error.
        let mut known: StreamInfo = serde_json::from_slice(&info.app_metadata).unwrap_or_default();
        if !info.schema.is_empty() {
            let schema = info.try_decode_schema().map_err(|e| Trouble::protocol(format!("the stream's schema: {e}")))?;
            known.schema = Some(schema.into());
        }
        Ok(known)
    }

    /// Whether a row keeps its number, so that a subscriber can go on where it stood; `None` if the
    /// server does not say.
    pub fn exactly_once(&self) -> Option<bool> {
        let delivery = self.delivery.as_ref()?.to_ascii_lowercase().replace(['_', '-'], "");
        Some(delivery == "exactlyonce")
    }

    /// Whether the job that reads the stream uses other columns, too, than these.
    pub fn reads_beyond(&self, sent: &Schema) -> bool {
        let lacks = |name: &String| sent.field_with_name(name).is_err();
        match (&self.wanted, &self.schema) {
            (Some(wanted), _) => wanted.iter().any(lacks),
            (None, Some(all)) => all.fields().iter().any(|f| f.name() != ROW_KIND && lacks(f.name())),
            (None, None) => false,
        }
    }

    /// Whether rows are updated and deleted: then a last column `row_kind` says what each does.
    pub fn updating(&self) -> bool {
        // Where nobody writes the stream, a server that says so shows the columns of the table that reads it, and one of
        // this name is the table's own.
        let looks_so = || self.subscribe != Some(false) && self.schema.as_ref().is_some_and(|s| has_row_kind(s));
        self.updating.unwrap_or_else(looks_so)
    }

    /// Whether the last column is none of the table's, but says what a row does: of a stream whose rows are updated, or
    /// of one that takes changes, where it may be left out.
    pub fn ends_in_kinds(&self) -> bool {
        let last = self.schema.as_ref().and_then(|s| s.fields().last());
        let named = last.is_some_and(|f| f.name() == ROW_KIND && *f.data_type() == DataType::Int8);
        // The columns may be those of the outlet, whose rows need not be updated although the table takes changes.
        named && (self.changes || self.updating())
    }
}

/// The column that says what a row of an updating stream does.
pub const ROW_KIND: &str = "row_kind";

/// Whether the last column is [`ROW_KIND`].
pub fn has_row_kind(schema: &Schema) -> bool {
    schema.fields().last().is_some_and(|f| f.name() == ROW_KIND && *f.data_type() == DataType::Int8 && !f.is_nullable())
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, ConnectError> {
    let mut value = MetadataValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| ConnectError::new("the token has characters that cannot be sent; expected printable ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The certificates to trust.
pub(crate) fn certificates(file: Option<&Path>) -> Result<Vec<u8>, ConnectError> {
    trusted(file, "ca-file")
}

/// An error and its causes, each once.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let more = e.to_string();
        if !more.is_empty() && !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = e.source();
    }
    text
}

/// Whether it makes sense to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// The server is away or busy; it may be back.
    Passing,
    /// The stream is unknown: wrong at the first attempt; later its job may not have started again.
    Unknown,
    /// The same would come of it.
    Final,
}

/// Why a call has failed.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub lasting: Lasting,
    pub text: String,
    /// The server refused where the subscription shall begin.
    pub refused: bool,
    /// Another client has taken the name.
    pub replaced: bool,
}

impl Trouble {
    /// What a status means.
    pub fn of(doing: &str, status: &Status) -> Self {
        let mut text = if status.message().is_empty() { status.code().description().to_string() } else { status.message().to_string() };
        if let Some(source) = status.source() {
            let more = chain(source);
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
        }
        let lasting = match status.code() {
            // Nothing will make a certificate right while we wait. The kind of the error is lost on its
            // way through the layers below, its text is not.
            _ if text.contains("invalid peer certificate") => Lasting::Final,
            // Another process has taken our name: going on would take it back, and so for ever.
            Code::Aborted => Lasting::Final,
            Code::NotFound => Lasting::Unknown,
            Code::InvalidArgument
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::ResourceExhausted
            | Code::OutOfRange
            | Code::Unimplemented => Lasting::Final,
            _ => Lasting::Passing,
        };
        let help = match status.code() {
            Code::Unauthenticated => format!("; pass a token, or set {TOKEN_VARIABLE}"),
            Code::Unimplemented => "; is this a Tidemill server?".to_string(),
            _ => String::new(),
        };
        let refused = matches!(status.code(), Code::InvalidArgument | Code::OutOfRange);
        Trouble { lasting, text: format!("{doing}: {text}{help}"), refused, replaced: status.code() == Code::Aborted }
    }

    /// The peer does not speak our protocol.
    pub fn protocol(text: impl Into<String>) -> Self {
        Trouble { lasting: Lasting::Final, text: text.into(), refused: false, replaced: false }
    }

    /// The connection ended before its time.
    pub fn ended(doing: &str) -> Self {
        let text = format!("{doing}: the server has ended the connection");
        Trouble { lasting: Lasting::Passing, text, refused: false, replaced: false }
    }

    /// The peer does not answer.
    pub fn silent(doing: &str) -> Self {
        let text = format!("{doing}: the server does not answer");
        Trouble { lasting: Lasting::Passing, text, refused: false, replaced: false }
    }
}

/// Counts attempts and says when the next one is due.
pub(crate) struct Tries {
    reconnect: super::options::Reconnect,
    failed: u32,
    /// There was a connection once: what is unknown now was known then.
    known: bool,
}

impl Tries {
    pub fn new(reconnect: super::options::Reconnect) -> Self {
        Tries { reconnect, failed: 0, known: false }
    }

    /// The server knows the stream.
    pub fn known(&mut self) {
        self.known = true;
    }

    /// The connection does what it is for: the next failure is the first again.
    pub fn worked(&mut self) {
        (self.failed, self.known) = (0, true);
    }

    /// How long to wait before trying again; an error if that makes no sense or was done often
    /// enough. The first failure in a row is told to whoever asked for notices.
    pub fn again(&mut self, place: &str, trouble: &Trouble) -> Result<Duration, ConnectError> {
        let pointless = match trouble.lasting {
            Lasting::Passing => false,
            Lasting::Unknown => !self.known,
            Lasting::Final => true,
        };
        if pointless {
            return Err(ConnectError::new(format!("{place}: {}", trouble.text)));
        }
        self.failed = self.failed.saturating_add(1);
        match self.reconnect.pause(self.failed) {
            Some(pause) => {
                if self.failed == 1 {
                    tidemill_connect::notice(&format!("{place}: {}; trying again", trouble.text));
                }
                Ok(pause)
            }
            None if self.reconnect.attempts == Some(0) => {
                Err(ConnectError::new(format!("{place}: {}; 'reconnect.attempts' = 0 says not to try again", trouble.text)))
            }
            None => Err(ConnectError::new(format!("{place}: {}; tried {} times in vain", trouble.text, self.failed))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Reconnect;
    use super::*;

    fn client(url: &str, token: Option<&str>, ca_file: Option<&str>) -> Result<Client, String> {
        let options = ClientOptions {
            token: token.map(String::from),
            ca_file: ca_file.map(PathBuf::from),
            ..ClientOptions::new(StreamUrl::parse(url).unwrap())
        };
        Client::new(&options).map_err(|e| e.to_string())
    }

    #[test]
    fn tokens_stay_on_the_machine_or_are_encrypted() {
        let request = client("flight://localhost:1/t", Some("secret"), None).unwrap().request(());
        let value = request.metadata().get("authorization").unwrap();
        assert_eq!((value.to_str().unwrap(), value.is_sensitive()), ("Bearer secret", true));
        let error = client("flight://example.org:1/t", Some("secret"), None).err().unwrap();
        assert!(error.contains("unencrypted to another machine"), "{error}");
        let error = client("flight://localhost:1/t", Some("sch\nlecht"), None).err().unwrap();
        assert!(error.contains("printable ASCII"), "{error}");
    }

    #[test]
    fn files_of_certificates_are_looked_at() {
        let error = client("flight+tls://localhost:1/t", None, Some("/no/such/file")).err().unwrap();
        assert!(error.contains("reading the certificates in '/no/such/file'"), "{error}");
        let error = client("flight+tls://localhost:1/t", None, Some("/dev/null")).err().unwrap();
        assert!(error.contains("no certificate in PEM form"), "{error}");
        let error = client("flight://localhost:1/t", None, Some("/dev/null")).err().unwrap();
        assert!(error.contains("flight+tls:// only"), "{error}");
    }

    #[test]
    fn what_errors_mean() {
        let lasting = |status: Status| Trouble::of("x", &status).lasting;
        assert_eq!(lasting(Status::unavailable("the job restarts")), Lasting::Passing);
        assert_eq!(lasting(Status::failed_precondition("not running")), Lasting::Passing);
        assert_eq!(lasting(Status::unknown("connection reset")), Lasting::Passing);
        assert_eq!(lasting(Status::not_found("no stream")), Lasting::Unknown);
        assert_eq!(lasting(Status::invalid_argument("columns differ")), Lasting::Final);
        assert_eq!(lasting(Status::aborted("another publisher has connected as 'a'")), Lasting::Final);
        assert_eq!(lasting(Status::unavailable("invalid peer certificate: UnknownIssuer")), Lasting::Final);
        assert!(Trouble::of("x", &Status::unauthenticated("no")).text.contains(TOKEN_VARIABLE));
    }

    #[test]
    fn attempts_are_counted_in_a_row() {
        let ms = Duration::from_millis;
        let passing = Trouble::ended("reading");
        let mut tries = Tries::new(Reconnect { attempts: Some(2), backoff: ms(10), backoff_max: ms(15) });
        let again = |tries: &mut Tries| tries.again("place", &passing).map_err(|e| e.to_string());
        assert_eq!((again(&mut tries), again(&mut tries)), (Ok(ms(10)), Ok(ms(15))));
        tries.worked();
        assert_eq!((again(&mut tries), again(&mut tries)), (Ok(ms(10)), Ok(ms(15))));
        assert_eq!(again(&mut tries), Err("place: reading: the server has ended the connection; tried 3 times in vain".into()));
        let unknown = Trouble::of("x", &Status::not_found("no stream"));
        assert!(Tries::new(tries.reconnect).again("place", &unknown).is_err());
        let mut known = Tries::new(tries.reconnect);
        known.worked();
        assert!(known.again("place", &unknown).is_ok());
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error_in_the_end() {
        // A port of this machine on which nobody listens any more.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let client = client(&format!("flight://127.0.0.1:{port}/t"), None, None).unwrap();
        let once = Reconnect { attempts: Some(1), backoff: Duration::from_millis(1), backoff_max: Duration::from_millis(1) };
        let error = client.describe(once, Arc::default()).unwrap_err().to_string();
        assert!(error.contains("asking about the stream") && error.contains("tried 2 times"), "{error}");
    }

    #[test]
    fn what_a_server_says_about_a_stream() {
        let info = |json: &str| StreamInfo::of(FlightInfo { app_metadata: json.as_bytes().to_vec().into(), ..FlightInfo::new() }).unwrap();
        assert_eq!(info("").exactly_once(), None);
        assert_eq!(info(r#"{"delivery":"live","more":1}"#).exactly_once(), Some(false));
        assert_eq!(info(r#"{"delivery":"exactly-once","snapshot":true}"#).exactly_once(), Some(true));
        assert_eq!(info(r#"{"delivery":"ExactlyOnce"}"#).exactly_once(), Some(true));
        assert!(info(r#"{"updating":true}"#).updating() && !info("{}").updating());
    }

    #[test]
    fn a_column_of_the_table_is_not_taken_for_what_rows_do() {
        use arrow::datatypes::Field;
        let ends = |text: &str, name: &str, nullable| {
            let fields = vec![Field::new("n", DataType::Int64, true), Field::new(name, DataType::Int8, nullable)];
            let known: StreamInfo = serde_json::from_str(text).unwrap();
            StreamInfo { schema: Some(Arc::new(Schema::new(fields))), ..known }.ends_in_kinds()
        };
        let (inlet, outlet) = (r#"{"publish":true,"subscribe":false}"#, r#"{"publish":true,"subscribe":true,"updating":false}"#);
        for own in [inlet, outlet] {
            assert!(!ends(own, "row_kind", false) && !ends(own, "row_kind", true), "{own}: the table declares it");
        }
        // The outlet's columns, while the table that reads takes changes.
        let both = r#"{"subscribe":true,"updating":false,"changes":true}"#;
        assert!(!ends(both, "kind", false) && !ends(both, "kind", true));
        assert!(ends(r#"{"subscribe":false,"changes":true}"#, "row_kind", true));
        assert!(ends(r#"{"subscribe":true,"updating":true}"#, "row_kind", false));
        // A server that says nothing.
        assert!(ends("{}", "row_kind", false) && !ends("{}", "row_kind", true));
    }

    #[test]
    fn columns_that_are_read_beyond_those_sent() {
        use arrow::datatypes::Field;
        let schema = |names: &[&str]| Schema::new(names.iter().map(|n| Field::new(*n, DataType::Int64, true)).collect::<Vec<_>>());
        let info = |wanted: Option<&[&str]>| StreamInfo {
            schema: Some(schema(&["a", "b", "c", "row_kind"]).into()),
            wanted: wanted.map(|names| names.iter().map(|n| n.to_string()).collect()),
            ..StreamInfo::default()
        };
        let sent = schema(&["a", "b"]);
        assert!(!info(Some(&["b"])).reads_beyond(&sent) && !info(Some(&[])).reads_beyond(&sent));
        assert!(info(Some(&["a", "c"])).reads_beyond(&sent));
        assert!(info(None).reads_beyond(&sent), "all of them");
        assert!(!info(None).reads_beyond(&schema(&["a", "b", "c"])));
    }
}
