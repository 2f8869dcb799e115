//! The schema registry of `avro-confluent`, over HTTP.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_connect::ConnectError;
use tidemill_format::json::base64;
use tidemill_format::message::{ConfluentOptions, MessageFormat, SchemaRegistry};
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a request is made before it counts as failed.
const ATTEMPTS: u32 = 3;
/// The wait before the second; it doubles.
const BACKOFF: Duration = Duration::from_millis(200);

/// What a registry answers that has no schema with an id; its HTTP status, 404, a wrong address gets, too.
const SCHEMA_NOT_FOUND: i64 = 40403;

/// Why there is no answer.
#[derive(Debug)]
struct Refusal {
    /// The registry's own code, if it is the registry that refuses.
    code: Option<i64>,
    why: String,
}

/// Gives a format the registry that its options name, if it needs one.
///
/// # Errors
/// Options that cannot be.
pub fn attach(format: &mut MessageFormat, subject: &str, owner: &str) -> Result<(), ConnectError> {
    format.default_subject(subject);
    let registry = match format.registry_options() {
        Some(options) => Registry::new(options).map_err(|why| ConnectError::new(format!("{owner}: {why}")))?,
        None => return Ok(()),
    };
    format.with_registry(Arc::new(registry));
    Ok(())
}

/// A registry.
struct Registry {
    agent: Agent,
    /// Its addresses, without a slash at the end; tried in order.
    urls: Vec<String>,
    authorization: Option<String>,
}

impl Registry {
    fn new(options: &ConfluentOptions) -> Result<Self, String> {
        let urls = options.url.split(',').map(|u| u.trim().trim_end_matches('/').to_string());
        let urls: Vec<String> = urls.filter(|u| !u.is_empty()).collect();
        if urls.is_empty() || !urls.iter().all(|u| u.starts_with("http://") || u.starts_with("https://")) {
            return Err(format!("option 'avro-confluent.url' = '{}': expected http://host:port", options.url));
        }
        if let Some(source) = options.credentials_source.as_deref().filter(|s| !s.eq_ignore_ascii_case("USER_INFO")) {
            return Err(format!("option 'avro-confluent.basic-auth.credentials-source' = '{source}': only USER_INFO is there"));
        }
        let authorization = match (&options.user_info, &options.bearer_token) {
            (Some(_), Some(_)) => {
                return Err("give either 'avro-confluent.basic-auth.user-info' or 'avro-confluent.bearer-auth.token'".into());
            }
            (Some(user), None) => Some(format!("Basic {}", base64::text(user.as_bytes()))),
            (None, Some(token)) => Some(format!("Bearer {token}")),
            (None, None) => None,
        };
        let mut config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT));
        if urls.iter().any(|u| ["//localhost", "//127.", "//[::1]"].iter().any(|own| u.contains(own))) {
            config = config.proxy(None);
        }
        if let Some(path) = std::env::var_os("SSL_CERT_FILE").filter(|_| urls.iter().any(|u| u.starts_with("https://"))) {
            let pem = std::fs::read(&path).map_err(|e| format!("reading the certificates in {}: {e}", path.display()))?;
            let certificates = parse_pem(&pem).filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            });
            let roots = RootCerts::Specific(Arc::new(certificates.collect()));
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(Registry { agent: config.build().into(), urls, authorization })
    }

    /// The answer to a request, made again where that may help.
    fn ask(&self, path: &str, body: Option<&str>) -> Result<Value, Refusal> {
        let mut failure = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(BACKOFF * (1 << (attempt - 1)));
            }
            for url in &self.urls {
                match self.once(&format!("{url}{path}"), body) {
                    Ok(Ok(value)) => return Ok(value),
                    Ok(Err(Refusal { code, why })) => return Err(Refusal { code, why: format!("schema registry {url}: {why}") }),
                    Err(trouble) => failure = format!("schema registry {url}: {trouble}; tried {ATTEMPTS} times"),
                }
            }
        }
        Err(Refusal { code: None, why: failure })
    }

    /// One request. The outer error is worth another try, the inner is the registry's word.
    fn once(&self, url: &str, body: Option<&str>) -> Result<Result<Value, Refusal>, String> {
        let answer = match body {
            None => {
                let mut request = self.agent.get(url).header("accept", "application/vnd.schemaregistry.v1+json, application/json");
                if let Some(text) = &self.authorization {
                    request = request.header("authorization", text.as_str());
                }
                request.call()
            }
            Some(body) => {
                let mut request = self.agent.post(url).header("content-type", "application/vnd.schemaregistry.v1+json");
                if let Some(text) = &self.authorization {
                    request = request.header("authorization", text.as_str());
                }
                request.send(body)
            }
        };
        let mut answer = answer.map_err(|e| e.to_string())?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().map_err(|e| e.to_string())?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let said = value.get("message").and_then(Value::as_str).map_or_else(|| text.chars().take(200).collect(), str::to_string);
        let code = value.get("error_code").and_then(Value::as_i64);
        let refused = |why: String| Ok(Err(Refusal { code, why }));
        match status {
            200..=299 if !value.is_null() => Ok(Ok(value)),
            408 | 429 | 500..=599 => Err(format!("answers {status}: {said}")),
            401 | 403 => refused(format!("answers {status}: {said}; see 'avro-confluent.basic-auth.user-info'")),
            _ => refused(format!("answers {status}: {said}")),
        }
    }
}

impl SchemaRegistry for Registry {
    fn schema(&self, id: u32) -> Result<Option<String>, String> {
        let answer = match self.ask(&format!("/schemas/ids/{id}"), None) {
            Ok(answer) => answer,
            Err(Refusal { code: Some(SCHEMA_NOT_FOUND), .. }) => return Ok(None),
            Err(refusal) => return Err(format!("asking for schema {id}: {}", refusal.why)),
        };
        if let Some(kind) = answer.get("schemaType").and_then(Value::as_str).filter(|k| *k != "AVRO") {
            return Err(format!("schema {id} is one of {kind}, not of Avro"));
        }
        match answer.get("schema").and_then(Value::as_str) {
            Some(schema) => Ok(Some(schema.to_string())),
            None => Err(format!("asking for schema {id}: the registry's answer has none")),
        }
    }

    fn register(&self, subject: &str, schema: &str) -> Result<u32, String> {
        let body = json!({ "schema": schema }).to_string();
        let path = format!("/subjects/{}/versions", escaped(subject));
        let answer = self.ask(&path, Some(&body));
        let answer = answer.map_err(|refusal| format!("registering a schema for subject '{subject}': {}", refusal.why))?;
        let id = answer.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| format!("registering a schema for subject '{subject}': the registry's answer has no id"))
    }
}

/// As part of a path.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Answers each request with the next text; gives what was asked.
    fn server(answers: Vec<&'static str>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                // A request of these tests is over with its last brace, or has no body.
                loop {
                    let n = stream.read(&mut piece).unwrap();
                    request.extend_from_slice(&piece[..n]);
                    let text = String::from_utf8_lossy(&request);
                    if n == 0 || (text.starts_with("GET") && text.ends_with("\r\n\r\n")) || text.ends_with('}') {
                        break;
                    }
                }
                asked.push(String::from_utf8(request).unwrap());
                stream.write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        (url, thread)
    }

    fn registry(url: &str) -> Registry {
        let options = [("avro-confluent.url", url), ("avro-confluent.basic-auth.user-info", "user:pass")];
        let mut raw = tidemill_format::options::RawOptions::new("table 't'", options.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        Registry::new(&tidemill_format::options::OptionSet::take(&mut raw).unwrap()).unwrap()
    }

    #[test]
    fn schemas_by_id_and_by_subject() {
        let (url, thread) = server(vec![
            "HTTP/1.1 200 OK\r\ncontent-length: 23\r\nconnection: close\r\n\r\n{\"schema\":\"\\\"string\\\"\"}",
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\n{\"id\":7}",
            "HTTP/1.1 404 No\r\ncontent-length: 24\r\nconnection: close\r\n\r\n{\"message\":\"not there\"}\n",
            "HTTP/1.1 404 No\r\ncontent-length: 43\r\nconnection: close\r\n\r\n{\"error_code\":40403,\"message\":\"not there\"}\n",
        ]);
        let registry = registry(&url);
        assert_eq!(registry.schema(1), Ok(Some("\"string\"".to_string())));
        assert_eq!(registry.register("a b-value", "\"string\""), Ok(7));
        let error = registry.schema(9).unwrap_err();
        assert!(error.contains("schema 9") && error.contains("404: not there"), "{error}");
        assert_eq!(registry.schema(10), Ok(None));
        let asked = thread.join().unwrap();
        assert!(asked[0].starts_with("GET /schemas/ids/1 "), "{}", asked[0]);
        assert!(asked[0].to_lowercase().contains("authorization: basic dxnlcjpwyxnz"), "{}", asked[0]);
        assert!(asked[1].starts_with("POST /subjects/a%20b-value/versions "), "{}", asked[1]);
        assert!(asked[2].contains("{\"schema\":\"\\\"string\\\"\"}"), "{}", asked[2]);
    }
}
