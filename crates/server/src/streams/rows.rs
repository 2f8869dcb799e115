//! What streams there are, what each is, who has acknowledged its rows, and the current contents of those
//! that keep them.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use tidemill_format::types::type_name;
use tidemill_hub::Stream;
use tokio::runtime::Handle;

use super::json::{JsonLines, array};
use super::{Shared, find};
use crate::auth::Access;
use crate::error::ApiError;

/// Rows in one answer unless the query says otherwise, and at most.
const ROWS_DEFAULT: usize = 1000;
const ROWS_MAX: usize = 1_000_000;

/// `GET /v1/streams`: those that may be read or written.
pub(super) async fn list(State(state): Shared, Extension(access): Extension<Access>) -> Json<Value> {
    let streams = state.hub.streams();
    let known: Vec<Value> = streams.iter().filter(|s| access.may_read(s.name()) || access.may_write(s.name())).map(|s| about(s)).collect();
    Json(json!({"streams": known}))
}

/// `GET /v1/streams/{name}`.
pub(super) async fn one(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    if !access.may_write(&name) {
        access.require_read(&name)?;
    }
    let stream = find(&state, &name)?;
    let mut about = about(&stream);
    // Who acknowledges is the readers' matter.
    if access.may_read(&name) {
        about["subscriptions"] = json!(stream.subscriptions());
    }
    Ok(Json(about))
}

fn about(stream: &Stream) -> Value {
    let columns = |schema: arrow::datatypes::SchemaRef| {
        let column =
            |f: &arrow::datatypes::FieldRef| json!({"name": f.name(), "type": type_name(f.data_type()), "nullable": f.is_nullable()});
        Value::Array(schema.fields().iter().map(column).collect())
    };
    let inlet = stream.inlet_schema().map(|schema| json!({"columns": columns(schema)}));
    let outlet = stream.outlet_schema().zip(stream.outlet_info()).map(|(schema, info)| {
        let mut outlet = json!(info);
        outlet["columns"] = columns(schema);
        outlet
    });
    json!({"name": stream.name(), "inlet": inlet, "outlet": outlet, "stats": stream.stats()})
}

/// Whether the names of a stream's peers may be forgotten.
fn may_forget(access: &Access, stream: &str) -> Result<(), ApiError> {
    if access.may_manage() { Ok(()) } else { access.require_write(stream) }
}

/// `DELETE /v1/streams/{name}/subscriptions/{who}`: rows need not be kept for that subscriber any more.
pub(super) async fn forget(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path((name, who)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    may_forget(&access, &name)?;
    let stream = find(&state, &name)?;
    let unknown = ApiError::not_found(format!("no subscriber '{who}' has acknowledged rows of stream '{name}'"))
        .with_help(format!("GET /v1/streams/{name} shows the names"));
    // It is written down before the answer.
    let work = move || stream.forget(&who).map_err(ApiError::from);
    let done = Handle::current().spawn_blocking(work).await;
    match done.unwrap_or_else(|e| Err(ApiError::internal(format!("internal error: {e}"))))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown),
    }
}

/// `DELETE /v1/streams/{name}/publishers/{who}`: what that publisher sent stays, but its name is not kept any more.
pub(super) async fn forget_publisher(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path((name, who)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    may_forget(&access, &name)?;
    match find(&state, &name)?.forget_publisher(&who)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found(format!("no publisher of stream '{name}' is known by the name '{who}'"))
            .with_help("it is the name given with --id, or by a client, and '/' in it is written %2F")),
    }
}

/// The query of [`rows`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsQuery {
    limit: Option<usize>,
}

/// `GET /v1/streams/{name}/rows?limit=`: the current contents as a JSON array of objects.
pub(super) async fn rows(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
    query: Result<Query<RowsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    access.require_read(&name)?;
    let Query(query) =
        query.map_err(|e| ApiError::bad_request(format!("reading the query: {}", e.body_text())).with_help("only ?limit=1000 is known"))?;
    let limit = query.limit.unwrap_or(ROWS_DEFAULT).min(ROWS_MAX);
    let stream = find(&state, &name)?;
    // Contents may lie on disk, and a million rows take a while.
    let work = move || contents(&stream, limit);
    let body = Handle::current().spawn_blocking(work).await.unwrap_or_else(|e| Err(ApiError::internal(format!("internal error: {e}"))))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn contents(stream: &Stream, limit: usize) -> Result<Vec<u8>, ApiError> {
    let rows = stream.contents(limit).ok_or_else(|| {
        let name = stream.name();
        match stream.outlet_info() {
            None => ApiError::conflict(format!("no running job writes stream '{name}'")).with_help("start its job and ask again"),
            Some(_) => ApiError::conflict(format!("stream '{name}' keeps no contents"))
                .with_help("declare its table with 'stream.snapshot' = 'true', or subscribe to its rows"),
        }
    })?;
    let failed = |e| ApiError::internal(format!("the contents of stream '{}': {e}", stream.name()));
    let mut lines = Vec::new();
    JsonLines::new(&rows.schema(), false).and_then(|mut json| json.encode(&rows, &mut lines)).map_err(failed)?;
    Ok(array(&lines))
}
