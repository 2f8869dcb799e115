//! The connector `http` as a table that is looked up: a request for each key, many at once.
//!
//! - [`options`]: what a table may say; [`template`]: addresses and bodies with places for keys
//! - [`client`]: the lookup of a shard; [`decode`], [`path`]: from answers to rows
//! - [`pool`], [`connection`], [`server`]: requests on their way; [`threads`]: where they are made; [`tls`]
//!
//! A server's 404, 204 and empty answers mean that there is nothing for a key. 408, 429, 5xx and broken
//! connections may be mended by another attempt, which the operator makes; other answers are errors.

mod client;
mod connection;
mod decode;
mod options;
mod path;
mod pool;
mod server;
mod template;
#[cfg(test)]
mod tests;
mod threads;
mod tls;

use std::path::Path as FilePath;

use arrow::datatypes::SchemaRef;
use axum::http::{Method, Uri};
use tidemill_connect::lookup::CacheKind;
use tidemill_connect::{ConnectError, Lookup, LookupContext, LookupOptions, LookupTable};
use tidemill_format::message::MessageFormat;
use tidemill_format::options::{OptionSet, OptionSpec, RawOptions};

use self::client::HttpLookup;
use self::decode::Answers;
use self::options::{HttpLookupOptions, LookupMethod};
use self::path::Path;
use self::server::Server;
use self::template::{Template, can_be_written};
use self::tls::Tls;
use super::options::HttpOptions;
use super::post::address;
use crate::headers;

pub use threads::io_threads;

/// The options of lookups, for the reference page.
pub(super) fn specs() -> Vec<OptionSpec> {
    HttpLookupOptions::specs()
}

/// Makes the table; what cannot work for any query is an error here.
pub(super) fn make(schema: &SchemaRef, raw: &mut RawOptions) -> Result<Box<dyn LookupTable>, ConnectError> {
    let common = LookupOptions::checked(raw)?;
    let own = HttpLookupOptions::checked(raw)?;
    let http = HttpOptions::checked_lookup(raw)?;
    let owner = raw.owner().to_string();
    let wrong = |name: &str, why: String| ConnectError::new(format!("{owner}: option '{name}': {why}"));
    if common.cache == CacheKind::Full {
        return Err(wrong("lookup.cache", "a server cannot be read whole; write 'PARTIAL' or 'NONE'".into()));
    }
    let Some(format) = MessageFormat::take(raw, "")? else {
        return Err(ConnectError::new(format!("{owner}: option 'format' is required; it is mostly json")));
    };
    let json = format.name() == "json";
    let path = match &own.json_path {
        Some(_) if !json => return Err(wrong("lookup.json-path", format!("there is no such thing in {}", format.name()))),
        Some(text) => Some(Path::parse(text).map_err(|why| wrong("lookup.json-path", why))?),
        None => json.then(Path::default),
    };
    if format.changelog() {
        return Err(wrong("format", format!("answers are rows, and {} has changes", format.name())));
    }
    // So that a column that cannot be read is found now.
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    format.decoder(schema, &all).map_err(|e| ConnectError::from(e).at(&owner))?;
    Ok(Box::new(HttpTable { common, own, http, format, path, owner }))
}

/// A table behind an address.
struct HttpTable {
    common: LookupOptions,
    own: HttpLookupOptions,
    http: HttpOptions,
    format: MessageFormat,
    path: Option<Path>,
    owner: String,
}

/// How keys become requests.
struct Requests {
    /// Path and query.
    target: Template,
    /// The whole address as messages show it.
    shown: Template,
    /// The body, if it has one.
    body: Option<RequestBody>,
    method: Method,
}

enum RequestBody {
    /// As the user says.
    Template(Template),
    /// An object of the keys.
    Object,
    /// An array of objects of the keys.
    Objects,
}

impl HttpTable {
    /// How the keys of a query become requests, and the host and port they go to.
    fn requests(&self, context: &LookupContext) -> Result<(Requests, Uri), ConnectError> {
        let wrong = |name: &str, why: String| ConnectError::new(format!("{}: option '{name}': {why}", self.owner));
        let keys = &context.keys;
        for key in keys.fields() {
            if !can_be_written(key.data_type()) {
                let shown = tidemill_format::types::type_name(key.data_type());
                return Err(ConnectError::new(format!(
                    "{}: the condition of the join asks by column {}, a {shown}, which cannot be put into a request",
                    self.owner,
                    key.name()
                )));
            }
        }
        let text = self.http.url.as_deref().unwrap_or_default().trim();
        let whole = Template::parse(text, keys, true).map_err(|why| wrong("url", why))?;
        // The path begins behind the host; host and port have no place for keys.
        let scheme = text.find("://").map_or(0, |at| at + 3);
        let split = text[scheme..].find(['/', '?']).map_or(text.len(), |at| scheme + at);
        let base = address(&text[..split]).map_err(|why| wrong("url", why))?;
        let rest = text[split..].split('#').next().unwrap_or_default();
        let rest = if rest.starts_with('/') { rest.to_string() } else { format!("/{rest}") };
        let target = Template::parse(&rest, keys, true).map_err(|why| wrong("url", why))?;
        let body = match (&self.own.body, self.own.method) {
            (_, LookupMethod::Get) => None,
            (Some(text), _) => Some(Template::parse(text, keys, false).map_err(|why| wrong("lookup.body", why))?),
            (None, _) => None,
        };
        let unnamed = |template: &Template| {
            let all = keys.fields().iter().enumerate().map(|(i, f)| (i, f.name().as_str()));
            all.filter(|(i, _)| !template.names(*i)).collect::<Vec<_>>()
        };
        let (mut target, mut shown) = (target, whole);
        let body = match (self.own.method, body) {
            (LookupMethod::Get, _) => {
                let more = unnamed(&target);
                target = target.with_query(&more);
                shown = shown.with_query(&more);
                None
            }
            (_, Some(body)) => {
                if let Some((_, name)) = unnamed(&target).into_iter().find(|(i, _)| !body.names(*i)) {
                    return Err(wrong(
                        "lookup.body",
                        format!("the condition of the join asks by {name}, but neither the body nor 'url' has a place for it: {{{name}}}"),
                    ));
                }
                Some(RequestBody::Template(body))
            }
            (_, None) if self.own.batch_size > 1 => Some(RequestBody::Objects),
            (_, None) => Some(RequestBody::Object),
        };
        if matches!(body, Some(RequestBody::Objects)) && (0..keys.fields().len()).any(|i| target.names(i)) {
            return Err(wrong("lookup.batch-size", "an address with places for keys asks for one key".into()));
        }
        let method = match self.own.method {
            LookupMethod::Get => Method::GET,
            LookupMethod::Post => Method::POST,
            LookupMethod::Put => Method::PUT,
        };
        // What is constant in the address must be fit to be sent; keys are encoded.
        let mut sample = rest.clone();
        for key in keys.fields() {
            sample = sample.replace(&format!("{{{}}}", key.name()), "0");
        }
        sample.parse::<Uri>().map_err(|e| wrong("url", format!("expected an address such as http://host:8080/users/{{id}} ({e})")))?;
        Ok((Requests { target, shown: shown.masked(), body, method }, base))
    }

    fn server(&self, base: &Uri, requests: &Requests) -> Result<Server, ConnectError> {
        let wrong = |why: String| ConnectError::new(format!("{}: {why}", self.owner));
        let host = base.host().unwrap_or_default();
        let encrypted = base.scheme_str() == Some("https");
        let file = self.http.ca_file.as_deref().map(FilePath::new);
        if file.is_some() && !encrypted {
            return Err(wrong("option 'ca-file': certificates are of use with https:// only".into()));
        }
        let tls = if encrypted { Some(Tls::new(host, file).map_err(|e| e.at(&self.owner))?) } else { None };
        let own = headers::all(self.http.headers.as_deref(), self.http.token.as_deref()).map_err(wrong)?;
        let authority = base.authority().map_or(host, |a| a.as_str());
        let headers = server::headers(own, authority, self.format.name() == "json", requests.body.is_some()).map_err(wrong)?;
        Ok(Server {
            host: host.trim_start_matches('[').trim_end_matches(']').to_string(),
            port: base.port_u16().unwrap_or(if encrypted { 443 } else { 80 }),
            tls,
            method: requests.method.clone(),
            headers,
            connect_timeout: self.own.connect_timeout,
            timeout: self.http.timeout,
            response_max: usize::try_from(self.own.response_max.0).unwrap_or(usize::MAX),
            connections_max: self.own.connections_max,
        })
    }
}

impl LookupTable for HttpTable {
    fn keys_max(&self) -> usize {
        self.own.batch_size
    }

    fn open(&self, context: LookupContext) -> Result<Box<dyn Lookup>, ConnectError> {
        let (requests, base) = self.requests(&context)?;
        let server = self.server(&base, &requests)?;
        let several = self.own.batch_size > 1;
        let answers =
            Answers::new(&self.format, self.path.clone(), context.columns, context.keys, several).map_err(|e| e.at(&self.owner))?;
        Ok(Box::new(HttpLookup::new(requests, server, answers, context.wake)))
    }

    fn options(&self) -> &LookupOptions {
        &self.common
    }
}
