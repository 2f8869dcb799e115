//! Arrow Flight: publishing (`DoPut`), subscribing (`DoGet`, and `DoExchange` with acknowledgements), and
//! what there is to find (`ListFlights`, `GetFlightInfo`, `GetSchema`). Text in metadata is JSON.
//!
//! - [`put`]: a publisher's call, and [`messages`], what it sends ([`parser`]: out of bytes); [`get`]: a subscriber's
//! - [`encode`]: rows as messages
//!
//! Rights are looked at here and by the feed, not by a gRPC interceptor: the middleware of all protocols
//! has put them into the request.

mod encode;
mod get;
mod messages;
mod parser;
mod put;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, Result as ActionResult, SchemaAsIpc, SchemaResult, Ticket,
};
use axum::http::StatusCode;
use axum::middleware::map_request;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::json;
use tidemill_hub::Stream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};

use self::get::{Deliveries, request_for, ticket};
use self::messages::{Messages, SetAside, set_aside};
use self::put::Put;
use crate::auth::Access;
use crate::error::ApiError;
use crate::limits::{FIRST_MESSAGE_TIMEOUT, MESSAGE_EXTRA_BYTES, NAME_BYTES_MAX, STREAM_LOOK_MAX, STREAM_LOOK_MIN, STREAM_PATIENCE};
use crate::state::AppState;
use crate::streams::{Feed, Watch, find};

/// The routes of the Flight service.
pub fn service(state: Arc<AppState>) -> axum::Router {
    // What is published does not come this way.
    let service = FlightServiceServer::new(Flight { state }).max_decoding_message_size(MESSAGE_EXTRA_BYTES);
    let path = format!("/{}/{{*method}}", FlightServiceServer::<Flight>::NAME);
    axum::Router::new().route_service(&path, service).route_layer(map_request(set_aside))
}

/// The largest message of a publisher that is taken.
fn message_bytes_max(state: &AppState) -> usize {
    state.limits.block_bytes.saturating_add(MESSAGE_EXTRA_BYTES)
}

/// The service.
struct Flight {
    state: Arc<AppState>,
}

type Answer<T> = Result<Response<T>, Status>;
type Items<T> = BoxStream<'static, Result<T, Status>>;

impl Flight {
    /// What the stream is to others: the columns that it gives, else those that it takes.
    fn info(&self, stream: &Stream) -> Result<FlightInfo, ApiError> {
        let schema = schema_of(stream)?;
        let mut about = json!({"publish": stream.inlet_schema().is_some(), "subscribe": false});
        if let Some(wanted) = stream.inlet_wanted() {
            about["wanted"] = json!(*wanted);
        }
        if stream.inlet_changes() {
            about["changes"] = true.into();
        }
        if let Some(outlet) = stream.outlet_info() {
            about["subscribe"] = true.into();
            about["updating"] = outlet.updating.into();
            about["delivery"] = json!(outlet.delivery);
            about["snapshot"] = outlet.snapshot.into();
            about["primary_key"] = outlet.primary_key.into();
        }
        // Without a location the endpoint is this very server.
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(stream.name().to_string()));
        let info = FlightInfo::new()
            .try_with_schema(&schema)
            .map_err(|e| ApiError::internal(format!("the schema of stream '{}': {e}", stream.name())))?;
        Ok(info
            .with_descriptor(FlightDescriptor::new_path(vec![stream.name().to_string()]))
            .with_endpoint(endpoint)
            .with_ordered(true)
            .with_total_records(-1)
            .with_total_bytes(-1)
            .with_app_metadata(about.to_string()))
    }

    /// The stream that a descriptor names, for one who may read or write it.
    fn found(&self, access: &Access, descriptor: &FlightDescriptor) -> Result<Arc<Stream>, ApiError> {
        let (name, _) = path(Some(descriptor))?;
        access.require_either(name)?;
        find(&self.state, name)
    }

    /// The same, for a question. While jobs are being started the stream may be there any moment, and clients that ask again
    /// pause before: so they wait here.
    async fn awaited(&self, access: &Access, descriptor: &FlightDescriptor) -> Result<Arc<Stream>, ApiError> {
        let until = Instant::now() + STREAM_PATIENCE;
        let mut pause = STREAM_LOOK_MIN;
        loop {
            let found = self.found(access, descriptor);
            let absent = match &found {
                Ok(stream) => schema_of(stream).is_err(),
                Err(error) => error.status() == StatusCode::SERVICE_UNAVAILABLE,
            };
            if !absent || !self.state.jobs.starting() || Instant::now() >= until {
                return found;
            }
            sleep(pause).await;
            pause = (pause * 2).min(STREAM_LOOK_MAX);
        }
    }
}

/// The rights of a request.
fn access<T>(request: &Request<T>) -> Result<Access, ApiError> {
    request.extensions().get::<Access>().cloned().ok_or_else(|| ApiError::internal("the request has passed no guard"))
}

/// The stream and the publisher's name, if any, that a descriptor gives.
fn path(descriptor: Option<&FlightDescriptor>) -> Result<(&str, &str), ApiError> {
    let wrong = |why: &str| ApiError::bad_request(format!("{why}; the descriptor must be a path of [stream] or [stream, publisher]"));
    let descriptor = descriptor.ok_or_else(|| wrong("the first message has no descriptor"))?;
    if descriptor.r#type() != DescriptorType::Path {
        return Err(wrong("the descriptor is not of type PATH"));
    }
    let (name, id) = match descriptor.path.as_slice() {
        [name] => (name.as_str(), ""),
        [name, id] => (name.as_str(), id.as_str()),
        _ => return Err(wrong("the descriptor's path has not one or two parts")),
    };
    if name.is_empty() || name.len() > NAME_BYTES_MAX || id.len() > NAME_BYTES_MAX {
        return Err(wrong("a name is empty or too long"));
    }
    Ok((name, id))
}

fn schema_of(stream: &Stream) -> Result<SchemaRef, ApiError> {
    stream.outlet_schema().or_else(|| stream.inlet_schema()).ok_or_else(|| {
        ApiError::conflict(format!("no running job reads or writes stream '{}'", stream.name())).with_help("start its job and ask again")
    })
}

/// The first message of a call: in time, and while its token is good.
async fn first<T>(message: impl Future<Output = Result<Option<T>, Status>>, access: &Access) -> Result<T, Status> {
    let message = async {
        let Ok(message) = timeout(FIRST_MESSAGE_TIMEOUT, message).await else {
            let error = ApiError::too_late(format!("no message has come for {} seconds", FIRST_MESSAGE_TIMEOUT.as_secs()));
            return Err(Status::from(error.with_help("send the first message with the call: it says what the call is about")));
        };
        message?.ok_or_else(|| Status::from(ApiError::bad_request("the call ended before its first message")))
    };
    Watch::new(access.clone()).during(message).await
}

#[tonic::async_trait]
impl FlightService for Flight {
    type HandshakeStream = Items<HandshakeResponse>;
    type ListFlightsStream = Items<FlightInfo>;
    type DoGetStream = Items<FlightData>;
    type DoPutStream = Items<PutResult>;
    type DoExchangeStream = Items<FlightData>;
    type DoActionStream = Items<ActionResult>;
    type ListActionsStream = Items<ActionType>;

    async fn handshake(&self, _request: Request<Streaming<HandshakeRequest>>) -> Answer<Self::HandshakeStream> {
        Err(Status::unimplemented("there is no handshake: send the metadata 'authorization: Bearer TOKEN' with each call"))
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        let access = access(&request)?;
        let part = String::from_utf8_lossy(&request.get_ref().expression).into_owned();
        let mut flights = Vec::new();
        for stream in self.state.hub.streams() {
            let name = stream.name();
            // One whose job has just ended is left out.
            if name.contains(&part)
                && (access.may_read(name) || access.may_write(name))
                && let Ok(info) = self.info(&stream)
            {
                flights.push(Ok(info));
            }
        }
        Ok(Response::new(stream::iter(flights).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        let (access, descriptor) = (access(&request)?, request.into_inner());
        let stream = self.awaited(&access, &descriptor).await?;
        Ok(Response::new(self.info(&stream)?))
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        Err(Status::unimplemented("a stream never becomes complete: call GetFlightInfo, then DoGet"))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let (access, descriptor) = (access(&request)?, request.into_inner());
        let stream = self.awaited(&access, &descriptor).await?;
        let schema = schema_of(&stream)?;
        let result = SchemaResult::try_from(SchemaAsIpc::new(&schema, &IpcWriteOptions::default()));
        let result = result.map_err(|e| ApiError::internal(format!("the schema of stream '{}': {e}", stream.name())))?;
        Ok(Response::new(result))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let access = access(&request)?;
        let feed = Feed::open(&self.state, &access, ticket(&request.get_ref().ticket)?)?;
        Ok(Response::new(Deliveries::new(feed, None).boxed()))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        let access = access(&request)?;
        let body = request.extensions().get::<SetAside>().and_then(SetAside::take);
        let body = body.ok_or_else(|| ApiError::internal("the request's body was not set aside"))?;
        drop(request);
        // The first message has no rows. Before it is known who publishes where, no room is kept for more.
        let mut messages = Messages::new(body, MESSAGE_EXTRA_BYTES, self.state.pending.room());
        let first = first(messages.message(), &access).await?;
        messages.allow(message_bytes_max(&self.state));
        let (name, id) = path(first.descriptor.as_ref())?;
        access.require_write(name)?;
        let stream = find(&self.state, name)?;
        messages.of_stream(name);
        // A schema, of which hardly anything stays.
        messages.settle();
        let begun = Put::begin(&first, messages, &stream, id, access, &self.state);
        let (put, answers) = begun.inspect_err(|error| error.count_in(&stream))?;
        // It ends when the publisher is gone: then the answers' receiver is dropped.
        Handle::current().spawn(put.run(self.state.counts.clone()));
        Ok(Response::new(ReceiverStream::new(answers).boxed()))
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoExchangeStream> {
        let access = access(&request)?;
        let mut messages = request.into_inner();
        let first = first(messages.message(), &access).await?;
        // Libraries that send the descriptor ahead of all metadata say in it what they want.
        let request = match &first.flight_descriptor {
            Some(descriptor) if descriptor.r#type() == DescriptorType::Cmd => ticket(&descriptor.cmd)?,
            descriptor => request_for(path(descriptor.as_ref())?.0, &first.app_metadata)?,
        };
        let feed = Feed::open(&self.state, &access, request)?;
        Ok(Response::new(Deliveries::new(feed, Some(messages)).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        match request.get_ref().r#type.as_str() {
            "ping" => {
                let pong = json!({"server": "tidemill", "version": env!("CARGO_PKG_VERSION")});
                let pong = ActionResult::new(pong.to_string());
                Ok(Response::new(stream::iter([Ok(pong)]).boxed()))
            }
            other => Err(ApiError::bad_request(format!("there is no action '{other}'; there is: ping")).into()),
        }
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        let ping = ActionType { r#type: "ping".to_string(), description: "Answers with name and version of the server".to_string() };
        Ok(Response::new(stream::iter([Ok(ping)]).boxed()))
    }
}

#[cfg(test)]
mod tests;
