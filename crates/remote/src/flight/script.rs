//! A server for tests that does what a script says: it remembers the rows of a stream, breaks
//! connections at given rows, and forgets what it was not asked to keep.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse, PollInfo,
    PutResult, Result as ActionResult, SchemaResult, Ticket,
};
use futures::Stream;
use serde_json::{Value, json};
use tidemill_format::FormatError;
use tokio::sync::mpsc::{Sender, channel};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::client::{Client, ClientOptions, MESSAGE_BYTES_MAX};
use super::options::Reconnect;
use super::wire::{Decoder, Encoder};
use crate::runtime;
use crate::url::StreamUrl;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// One stream with one BIGINT column `n`.
#[derive(Default)]
pub struct Script {
    /// Breaks the call when so many rows have come (or gone) over it; each number once, in order.
    pub breaks: Vec<u64>,
    /// Acknowledges only when asked to, or at the end.
    pub lazy: bool,
    /// Forgets at a break what it has not acknowledged, as after a crash.
    pub forgetful: bool,
    /// Rows by publisher: taken, acknowledged, the latest position.
    pub taken: HashMap<String, Taken>,
    /// The stream that subscribers get, in messages of this many rows.
    pub outlet: Vec<i64>,
    pub block: usize,
    pub delivery: &'static str,
    /// Counts its rows anew for each subscription, as another process would.
    pub recounts: bool,
    /// An exchange says when nothing follows, and ends when all is acknowledged.
    pub ends: bool,
    /// Tickets and first messages of subscribers.
    pub requests: Vec<Value>,
    pub acks: Vec<u64>,
    /// How often it was asked to acknowledge soon.
    pub urges: usize,
}

#[derive(Clone, Default, Debug)]
pub struct Taken {
    pub rows: Vec<i64>,
    pub acknowledged: usize,
    pub position: Value,
    /// The position as of what is acknowledged.
    pub safe_position: Value,
}

impl Taken {
    fn acknowledge(&mut self) -> u64 {
        self.acknowledged = self.rows.len();
        self.safe_position = self.position.clone();
        self.acknowledged as u64
    }
}

/// The server, and where it listens.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Mutex<Script>>,
    pub address: SocketAddr,
}

/// The columns of the stream.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]))
}

/// Rows of the stream.
pub fn batch(values: impl IntoIterator<Item = i64>) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(values.into_iter().map(Some).collect::<Int64Array>())]).unwrap()
}

/// The values of a batch.
pub fn values(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()
}

/// Tries again at once, for ever.
pub fn at_once() -> Reconnect {
    let pause = std::time::Duration::from_millis(1);
    Reconnect { attempts: None, backoff: pause, backoff_max: pause }
}

impl Scripted {
    /// Starts a server.
    pub fn start(script: Script) -> Self {
        let script = Arc::new(Mutex::new(script));
        let served = Service(script.clone());
        let address = runtime::wait(async move {
            let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let address = incoming.local_addr().unwrap();
            let server = Server::builder()
                .add_service(FlightServiceServer::new(served).max_decoding_message_size(64 << 20))
                .serve_with_incoming(incoming);
            runtime::handle().unwrap().spawn(server);
            address
        });
        Scripted { script, address: address.unwrap() }
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// `flight://…/s`.
    pub fn url(&self) -> String {
        format!("flight://{}/s", self.address)
    }

    pub fn client(&self) -> Client {
        Client::new(&ClientOptions::new(StreamUrl::parse(&self.url()).unwrap())).unwrap()
    }

    /// The rows taken from a publisher.
    pub fn rows(&self, publisher: &str) -> Vec<i64> {
        self.script().taken.get(publisher).map(|t| t.rows.clone()).unwrap_or_default()
    }
}

struct Service(Arc<Mutex<Script>>);

impl Service {
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }
}

/// The break that is due when `rows` have come over a call.
fn due(script: &mut Script, rows: u64) -> bool {
    let due = script.breaks.first().is_some_and(|at| rows >= *at);
    if due {
        script.breaks.remove(0);
    }
    due
}

fn answer(value: &Value) -> PutResult {
    PutResult { app_metadata: value.to_string().into_bytes().into() }
}

/// Takes one publisher's rows.
async fn take(
    script: Arc<Mutex<Script>>,
    mut messages: Streaming<FlightData>,
    out: &Sender<Result<PutResult, Status>>,
) -> Result<(), Status> {
    let invalid = |e: FormatError| Status::invalid_argument(e.to_string());
    let first = messages.message().await?.ok_or_else(|| Status::invalid_argument("no schema"))?;
    let id = first.flight_descriptor.as_ref().map(|d| d.path[1].clone()).unwrap_or_default();
    let mut decoder = Decoder::new(&first, MESSAGE_BYTES_MAX).map_err(invalid)?.expect("a schema");
    let hello = {
        let mut script = script.lock().unwrap();
        let taken = script.taken.entry(id.clone()).or_default();
        json!({ "offset": taken.rows.len(), "acknowledged": taken.acknowledged, "position": taken.position })
    };
    let _ = out.send(Ok(answer(&hello))).await;
    let mut came = 0;
    while let Some(data) = messages.message().await? {
        let about: Value = serde_json::from_slice(&data.app_metadata).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let batch = decoder.decode(data).map_err(invalid)?.expect("rows");
        let offset = about["offset"].as_u64().expect("numbered") as usize;
        let told = {
            let mut guard = script.lock().unwrap();
            let script = &mut *guard;
            came += batch.num_rows() as u64;
            let broken = due(script, came);
            let urged = about["urge"] == json!(true);
            script.urges += usize::from(urged);
            let lazy = script.lazy && !urged;
            let forgetful = script.forgetful;
            let taken = script.taken.get_mut(&id).expect("entered above");
            if broken {
                if forgetful {
                    taken.rows.truncate(taken.acknowledged);
                    taken.position = taken.safe_position.clone();
                }
                return Err(Status::unavailable("the script breaks the call"));
            }
            if offset > taken.rows.len() {
                return Err(Status::invalid_argument(format!("a gap: row {offset} behind row {}", taken.rows.len())));
            }
            let fresh = values(&batch).split_off((taken.rows.len() - offset).min(batch.num_rows()));
            if !fresh.is_empty() || batch.num_rows() == 0 {
                taken.rows.extend(fresh);
                if !about["position"].is_null() {
                    taken.position = about["position"].clone();
                }
            }
            (!lazy).then(|| taken.acknowledge())
        };
        if let Some(acknowledged) = told {
            let _ = out.send(Ok(answer(&json!({ "acknowledged": acknowledged })))).await;
        }
    }
    let last = script.lock().unwrap().taken.get_mut(&id).expect("entered above").acknowledge();
    let _ = out.send(Ok(answer(&json!({ "acknowledged": last })))).await;
    Ok(())
}

/// Gives a subscriber its rows.
async fn give(script: Arc<Mutex<Script>>, request: Value, out: &Sender<Result<FlightData, Status>>) -> Result<(), Status> {
    let (start, block, rows, begins) = {
        let mut script = script.lock().unwrap();
        script.requests.push(request.clone());
        let live = script.delivery == "live";
        let start = match &request["from"] {
            Value::Object(from) if live => return Err(Status::invalid_argument(format!("a live stream has no row {}", from["offset"]))),
            Value::Object(from) => from["offset"].as_u64().unwrap() as usize,
            // What has passed is lost to whoever begins now: here every second start.
            Value::String(now) if now == "now" && script.requests.len() > 1 => script.outlet.len() / 2,
            _ => 0,
        };
        let mut begins = json!({ "offset": start });
        if script.recounts {
            begins["count"] = script.requests.len().to_string().into();
        }
        (start, script.block.max(1), script.outlet.clone(), begins.to_string())
    };
    let mut encoder = Encoder::new();
    if out.send(Ok(encoder.schema(&schema()).with_app_metadata(begins))).await.is_err() {
        return Ok(());
    }
    let mut gone = 0;
    for (index, part) in rows[start..].chunks(block).enumerate() {
        if due(&mut script.lock().unwrap(), gone) {
            return Err(Status::unavailable("the script breaks the call"));
        }
        gone += part.len() as u64;
        let next = start + index * block + part.len();
        let data = encoder.encode(&batch(part.iter().copied()), 0).unwrap();
        if out.send(Ok(data.with_app_metadata(json!({ "offset": next, "snapshot": false }).to_string()))).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// A stream of what comes through a channel.
fn answers<T: Send + 'static>(receiver: tokio::sync::mpsc::Receiver<Result<T, Status>>) -> Answers<T> {
    Box::pin(futures::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) }))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<ActionResult>;
    type ListActionsStream = Answers<ActionType>;

    async fn handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(Status::unimplemented("handshake"))
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(Status::unimplemented("list_flights"))
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let about = json!({ "delivery": self.lock().delivery, "updating": false });
        let info = FlightInfo::new().try_with_schema(&schema()).unwrap().with_app_metadata(about.to_string());
        Ok(Response::new(info))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(Status::unimplemented("poll_flight_info"))
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        Err(Status::unimplemented("get_schema"))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let ticket = serde_json::from_slice(&request.into_inner().ticket).expect("a ticket in JSON");
        let (script, (sender, receiver)) = (self.0.clone(), channel(4));
        runtime::handle().unwrap().spawn(async move {
            if let Err(status) = give(script, ticket, &sender).await {
                let _ = sender.send(Err(status)).await;
            }
        });
        Ok(Response::new(answers(receiver)))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let (script, (sender, receiver)) = (self.0.clone(), channel(4));
        runtime::handle().unwrap().spawn(async move {
            if let Err(status) = take(script, request.into_inner(), &sender).await {
                let _ = sender.send(Err(status)).await;
            }
        });
        Ok(Response::new(answers(receiver)))
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        let (script, (sender, receiver)) = (self.0.clone(), channel(4));
        let mut messages = request.into_inner();
        runtime::handle().unwrap().spawn(async move {
            let Ok(Some(first)) = messages.message().await else { return };
            let request = serde_json::from_slice(&first.app_metadata).expect("a request in JSON");
            if let Err(status) = give(script.clone(), request, &sender).await {
                let _ = sender.send(Err(status)).await;
                return;
            }
            let end = {
                let script = script.lock().unwrap();
                script.ends.then_some(script.outlet.len() as u64)
            };
            if let Some(end) = end {
                let data = Encoder::new().encode(&batch([]), 0).unwrap();
                let about = json!({ "offset": end, "snapshot": false, "end": true }).to_string();
                let _ = sender.send(Ok(data.with_app_metadata(about))).await;
            }
            // The stream goes on without rows; acknowledgements are heard until the client has gone.
            while let Ok(Some(data)) = messages.message().await {
                let about: Value = serde_json::from_slice(&data.app_metadata).expect("JSON");
                let ack = about["ack"].as_u64().expect("a row");
                script.lock().unwrap().acks.push(ack);
                if end == Some(ack) {
                    return;
                }
            }
        });
        Ok(Response::new(answers(receiver)))
    }

    async fn do_action(&self, _: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        Err(Status::unimplemented("do_action"))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Err(Status::unimplemented("list_actions"))
    }
}
