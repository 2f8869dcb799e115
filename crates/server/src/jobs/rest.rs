//! The jobs over HTTP: list, add, start, stop, restart, remove, and how each stands.
//!
//! All of it asks for the right to manage: the text of a job says what is read and written where.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::{Jobs, NewJob};
use crate::auth::Access;
use crate::error::ApiError;
use crate::limits::JOB_TEXT_BYTES_MAX;
use crate::state::AppState;

/// What comes around a text in a request: names, settings, escapes of every character.
const BODY_BYTES_MAX: usize = 2 * JOB_TEXT_BYTES_MAX;

/// Everything below `/v1/jobs`.
pub fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/v1/jobs", get(list).post(add))
        .route("/v1/jobs/{name}", get(one).delete(remove))
        .route("/v1/jobs/{name}/start", post(start))
        .route("/v1/jobs/{name}/stop", post(stop))
        .route("/v1/jobs/{name}/restart", post(restart))
        .route("/v1/jobs/{name}/plan", get(plan))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// What a start may ask for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartQuery {
    /// Forget the checkpoints.
    #[serde(default)]
    fresh: bool,
}

/// What a removal may ask for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveQuery {
    #[serde(default)]
    keep: Option<Keep>,
}

/// What outlives a job.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Keep {
    /// Logs and contents of the streams that it wrote.
    Streams,
}

type Shared = State<Arc<AppState>>;
type Start = Result<Query<StartQuery>, QueryRejection>;

async fn list(State(state): Shared, Extension(access): Extension<Access>) -> Result<Response, ApiError> {
    access.require_manage()?;
    Ok(Json(json!({"jobs": state.jobs.list()})).into_response())
}

async fn add(
    State(state): Shared,
    Extension(access): Extension<Access>,
    body: Result<Json<NewJob>, JsonRejection>,
) -> Result<Response, ApiError> {
    access.require_manage()?;
    let Json(new) = body.map_err(|e| {
        let error = ApiError::new(e.status(), format!("reading the job: {}", e.body_text()));
        error.with_help("send JSON, with 'Content-Type: application/json': {\"name\": …, \"sql\": …}")
    })?;
    let view = blocking(&state, move |jobs| jobs.put(new)).await?;
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

async fn one(State(state): Shared, Extension(access): Extension<Access>, Path(name): Path<String>) -> Result<Response, ApiError> {
    access.require_manage()?;
    Ok(Json(state.jobs.get(&name)?).into_response())
}

async fn remove(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
    query: Result<Query<RemoveQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    access.require_manage()?;
    let keep_streams = match query {
        Ok(Query(query)) => matches!(query.keep, Some(Keep::Streams)),
        Err(e) => return Err(wrong_query(&e).with_help("only ?keep=streams is known")),
    };
    blocking(&state, move |jobs| jobs.remove(&name, keep_streams)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn start(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
    query: Start,
) -> Result<Response, ApiError> {
    access.require_manage()?;
    let fresh = fresh(query)?;
    let view = blocking(&state, move |jobs| jobs.start(&name, fresh)).await?;
    Ok(Json(view).into_response())
}

async fn stop(State(state): Shared, Extension(access): Extension<Access>, Path(name): Path<String>) -> Result<Response, ApiError> {
    access.require_manage()?;
    let view = blocking(&state, move |jobs| jobs.stop(&name)).await?;
    // Accepted: the last checkpoint takes longer than a request should.
    let status = if view.state == super::State::Stopping { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(view)).into_response())
}

async fn restart(
    State(state): Shared,
    Extension(access): Extension<Access>,
    Path(name): Path<String>,
    query: Start,
) -> Result<Response, ApiError> {
    access.require_manage()?;
    let fresh = fresh(query)?;
    let view = blocking(&state, move |jobs| jobs.restart(&name, fresh)).await?;
    Ok(Json(view).into_response())
}

async fn plan(State(state): Shared, Extension(access): Extension<Access>, Path(name): Path<String>) -> Result<Response, ApiError> {
    access.require_manage()?;
    Ok(blocking(&state, move |jobs| jobs.plan(&name)).await?.into_response())
}

fn fresh(query: Start) -> Result<bool, ApiError> {
    match query {
        Ok(Query(query)) => Ok(query.fresh),
        Err(e) => Err(wrong_query(&e).with_help("only ?fresh=true is known")),
    }
}

fn wrong_query(e: &QueryRejection) -> ApiError {
    ApiError::bad_request(format!("reading the query: {}", e.body_text()))
}

/// Does what waits (planning, disks, last checkpoints) on a thread that may.
async fn blocking<T: Send + 'static>(
    state: &Arc<AppState>,
    work: impl FnOnce(&Jobs) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let jobs = state.jobs.clone();
    let done = tokio::runtime::Handle::current().spawn_blocking(move || work(&jobs)).await;
    done.unwrap_or_else(|e| Err(ApiError::internal(format!("internal error: the request's thread ended: {e}"))))
}
