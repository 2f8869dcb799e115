//! What the sender of a request is told when its rows are not taken.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A request that is refused: `{"error": …, "help": …}` with a status.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    error: String,
    help: Option<String>,
    /// For `Retry-After`, seconds.
    retry_after: Option<u64>,
}

impl Refusal {
    /// A refusal with this text.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Refusal { status, error: error.into(), help: None, retry_after: None }
    }

    /// The body cannot be read as a whole.
    pub fn unreadable(why: impl std::fmt::Display) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {why}")).help("nothing of it was taken")
    }

    /// The body is too large.
    pub fn too_large(bytes_max: u64) -> Self {
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {bytes_max} bytes"))
            .help("nothing of it was taken; send fewer rows at once, or raise 'max-body-size' of the table")
    }

    /// Nothing can be taken at the moment.
    pub fn unavailable(error: impl Into<String>, retry_after: u64) -> Self {
        Refusal { retry_after: Some(retry_after), ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error) }
    }

    /// Says what to do about it.
    pub fn help(self, help: impl Into<String>) -> Self {
        Refusal { help: Some(help.into()), ..self }
    }

    #[cfg(test)]
    pub fn text(&self) -> String {
        format!("{} {}", self.status.as_u16(), self.error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut text = json!({"error": self.error});
        if let Some(help) = self.help {
            text["help"] = help.into();
        }
        let mut response = (self.status, Json(text)).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("POST, PUT"));
            }
            _ => {}
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
