//! [`ApiError`]: what a request over HTTP or Flight is refused or fails with. One value for both: as an
//! HTTP answer it is `{"error": "...", "help": "..."}` with a status, as a gRPC answer a status with the
//! same words.
//!
//! Which rows, jobs or streams lead to which error is for those who make it; how it looks is here.

use std::fmt;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidemill_hub::{HubError, Refusal, Stream};
use tonic::{Code, Status};

/// An error for the peer: what went wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    error: String,
    help: Option<String>,
    /// Why a publisher's rows are not taken, where that is counted for the stream and the stream has not done so.
    refusal: Option<Refusal>,
}

impl ApiError {
    /// An error with this HTTP status.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        ApiError { status, error: error.into(), help: None, refusal: None }
    }
    /// 400, `INVALID_ARGUMENT`: the request is wrong and stays wrong.
    pub fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }
    /// 401, `UNAUTHENTICATED`: no token, or one that is unknown or expired.
    pub fn unauthenticated(error: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, error)
    }
    /// 403, `PERMISSION_DENIED`: the token is good and does not give this right.
    pub fn forbidden(error: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error)
    }
    /// 404, `NOT_FOUND`.
    pub fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }
    /// 408, `DEADLINE_EXCEEDED`: what was to come did not come in time.
    pub fn too_late(error: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, error)
    }
    /// 409, `FAILED_PRECONDITION`: right in itself, but not as things stand.
    pub fn conflict(error: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, error)
    }
    /// 413, `RESOURCE_EXHAUSTED`: more bytes than are taken at once.
    pub fn too_large(error: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error).because(Refusal::TooLarge)
    }
    /// 429, `RESOURCE_EXHAUSTED`: too slow, or too many.
    pub fn exhausted(error: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, error)
    }
    /// 500, `INTERNAL`: our fault, or the disk's.
    pub fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
    /// 503, `UNAVAILABLE`: try again.
    pub fn unavailable(error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// Says what to do about it.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says what a publisher's refusal counts for.
    pub fn because(mut self, why: Refusal) -> Self {
        self.refusal = Some(why);
        self
    }

    /// Counts the refusal of a publisher of this stream, if it is one.
    pub(crate) fn count_in(&self, stream: &Stream) {
        if let Some(why) = self.refusal {
            stream.count_refused(why);
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }
    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.error
    }
    /// What to do about it.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The body of the HTTP answer, also sent as the last message of a WebSocket or event stream.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.help {
            Some(help) => json!({"error": self.error, "help": help}),
            None => json!({"error": self.error}),
        }
    }

    /// The gRPC code that says the same as the HTTP status.
    pub fn code(&self) -> Code {
        match self.status {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::InvalidArgument,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND => Code::NotFound,
            StatusCode::CONFLICT => Code::FailedPrecondition,
            // No other try can help: whoever came instead would be ended by it.
            StatusCode::GONE => Code::Aborted,
            StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED => Code::Unimplemented,
            _ => Code::Internal,
        }
    }
}

/// The HTTP status that says the same as a gRPC code, as [`ApiError::code`] has them; `None` if all is well.
pub(crate) fn status_of(code: Code) -> Option<StatusCode> {
    Some(match code {
        Code::Ok => return None,
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::FailedPrecondition => StatusCode::CONFLICT,
        Code::Aborted => StatusCode::GONE,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        // What tonic says of a message beyond its bound.
        Code::OutOfRange => StatusCode::PAYLOAD_TOO_LARGE,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    })
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.help {
            Some(help) => write!(f, "{}; {help}", self.error),
            None => f.write_str(&self.error),
        }
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.to_json())).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            // Seconds.
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<ApiError> for Status {
    fn from(e: ApiError) -> Status {
        Status::new(e.code(), e.to_string())
    }
}

impl From<HubError> for ApiError {
    fn from(e: HubError) -> ApiError {
        let status = match &e {
            HubError::NoStream(_) => StatusCode::NOT_FOUND,
            HubError::NotPublished(_) | HubError::NotSubscribable(_) | HubError::Gap { .. } => StatusCode::CONFLICT,
            HubError::Schema(_) | HubError::Refused(_) => StatusCode::BAD_REQUEST,
            HubError::Gone(_) => StatusCode::SERVICE_UNAVAILABLE,
            HubError::Replaced(_) => StatusCode::GONE,
            HubError::TooSlow(_) | HubError::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            HubError::Io(_) | HubError::Data(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: ApiError, status: u16, code: Code, json: &str) {
        assert_eq!((error.status().as_u16(), error.code(), error.to_json().to_string().as_str()), (status, code, json));
        let text = error.to_string();
        assert_eq!(Status::from(error).message(), text);
    }

    #[test]
    fn one_error_in_both_protocols() {
        check(ApiError::bad_request("no"), 400, Code::InvalidArgument, r#"{"error":"no"}"#);
        check(ApiError::not_found("no").with_help("so"), 404, Code::NotFound, r#"{"error":"no","help":"so"}"#);
        check(HubError::NotPublished("no".into()).into(), 409, Code::FailedPrecondition, r#"{"error":"no"}"#);
        check(HubError::NotSubscribable("no".into()).into(), 409, Code::FailedPrecondition, r#"{"error":"no"}"#);
        check(HubError::Refused("no".into()).into(), 400, Code::InvalidArgument, r#"{"error":"no"}"#);
        check(HubError::Gone("no".into()).into(), 503, Code::Unavailable, r#"{"error":"no"}"#);
        check(HubError::Replaced("no".into()).into(), 410, Code::Aborted, r#"{"error":"no"}"#);
        check(HubError::TooSlow("no".into()).into(), 429, Code::ResourceExhausted, r#"{"error":"no"}"#);
        check(HubError::Io("no".into()).into(), 500, Code::Internal, r#"{"error":"no"}"#);
        check(ApiError::unauthenticated("no"), 401, Code::Unauthenticated, r#"{"error":"no"}"#);
        check(ApiError::forbidden("no"), 403, Code::PermissionDenied, r#"{"error":"no"}"#);
        check(ApiError::too_large("no"), 413, Code::ResourceExhausted, r#"{"error":"no"}"#);
        check(ApiError::too_late("no"), 408, Code::DeadlineExceeded, r#"{"error":"no"}"#);
    }
}
