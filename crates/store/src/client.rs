//! Clients: from a URL and options to something that can be asked, made once and shared by the process.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpConnector, ReqwestConnector};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectMeta, ObjectStore, RetryConfig, StaticCredentialProvider};

use crate::error::{Kind, StoreError};
use crate::profile::Profile;
use crate::runtime::{BACKOFF_MAX, lock};
use crate::web::Site;
use crate::{Object, Scheme, StoreOptions};

/// Clients that are kept; a process that has asked more buckets than this begins anew.
const CLIENTS_MAX: usize = 256;
/// How long the client library goes on repeating one request: its credentials may have run out after that.
const REPEAT: std::time::Duration = std::time::Duration::from_secs(180);

/// A bucket, or a web server.
pub(crate) struct Client {
    pub scheme: Scheme,
    /// The URL without the key and its slash: `gs://bucket`.
    pub base: String,
    pub backend: Backend,
    /// Repetitions of what failed in passing.
    pub retries: u32,
    /// How long a body may be silent.
    pub silence: std::time::Duration,
    /// Requests under way for one file, at most.
    pub parallel: usize,
    /// Bytes of a reader's request.
    pub read_bytes: u64,
    /// Bytes of an upload's part.
    pub part_bytes: usize,
    /// Whether it is known that conditions of puts are heeded.
    pub heeds_conditions: AtomicBool,
}

pub(crate) enum Backend {
    /// The same client three times: the library has a trait for each of its faces.
    Bucket {
        objects: Arc<dyn ObjectStore>,
        uploads: Arc<dyn MultipartStore>,
        lists: Arc<dyn PaginatedListStore>,
    },
    Web(Site),
}

/// A URL taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub scheme: Scheme,
    /// As it was written, in lower case.
    pub scheme_name: String,
    /// Bucket, container, or server with its port.
    pub host: &'a str,
    /// What follows the slash; for web servers with the query.
    pub key: &'a str,
}

impl<'a> Place<'a> {
    /// Takes `url` apart. Keys are as they are written: nothing in them is decoded.
    ///
    /// # Errors
    /// Another scheme; no bucket.
    pub fn parse(url: &'a str) -> Result<Self, StoreError> {
        let wrong = |why: &str| StoreError::new(Kind::Other, format!("'{url}' {why}"));
        let (name, rest) = url.split_once("://").ok_or_else(|| wrong("is no URL; write 'gs://bucket/path'"))?;
        let scheme_name = name.to_ascii_lowercase();
        let scheme = Scheme::named(&scheme_name)
            .ok_or_else(|| wrong("has a scheme that is not known here; known are gs, s3, az, azure, abfs, abfss, http and https"))?;
        let (host, key) = match (rest.find('/'), rest.find('?')) {
            (Some(slash), query) if query.is_none_or(|q| slash < q) => (&rest[..slash], &rest[slash + 1..]),
            (_, Some(query)) if scheme == Scheme::Http => (&rest[..query], &rest[query..]),
            _ => (rest, ""),
        };
        if host.is_empty() {
            return Err(wrong("names no bucket; write it behind '://', as in 'gs://bucket/path'"));
        }
        if scheme == Scheme::Http && host.contains('@') {
            return Err(wrong("has a login in it, which is not sent; use a signed URL"));
        }
        Ok(Place { scheme, scheme_name, host, key })
    }

    fn base(&self) -> String {
        format!("{}://{}", self.scheme_name, self.host)
    }
}

/// The client for `place`, made now or before.
///
/// # Errors
/// Options or credentials that make no sense.
pub(crate) fn client(place: &Place, options: &StoreOptions) -> Result<Arc<Client>, StoreError> {
    static CLIENTS: Mutex<Option<HashMap<String, Arc<Client>>>> = Mutex::new(None);
    let base = place.base();
    let id = format!("{base} {}", options.fingerprint());
    let mut clients = lock(&CLIENTS);
    let clients = clients.get_or_insert_default();
    if let Some(client) = clients.get(&id) {
        return Ok(client.clone());
    }
    options.check()?;
    let failed = |e: object_store::Error| StoreError::of(format!("preparing access to '{base}'"), place.scheme, &e);
    let backend = match place.scheme {
        Scheme::Google => google(place.host, options).map_err(failed)?,
        Scheme::S3 => s3(place.host, options).map_err(failed)?,
        Scheme::Azure => azure(&base, options).map_err(failed)?,
        Scheme::Http => {
            let plain = ClientOptions::new().with_allow_http(true).with_timeout_disabled();
            let http = ReqwestConnector::default().connect(&plain).map_err(failed)?;
            Backend::Web(Site { http, retries: options.retries, silence: options.timeout })
        }
    };
    let client = Arc::new(Client {
        scheme: place.scheme,
        base,
        backend,
        retries: options.retries,
        silence: options.timeout,
        parallel: options.parallel,
        read_bytes: options.read_size.0,
        part_bytes: options.part_size.0 as usize,
        heeds_conditions: AtomicBool::new(false),
    });
    if clients.len() >= CLIENTS_MAX {
        clients.clear();
    }
    clients.insert(id, client.clone());
    Ok(client)
}

fn retry(options: &StoreOptions) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: BACKOFF_MAX, ..BackoffConfig::default() },
        max_retries: options.retries as usize,
        retry_timeout: REPEAT,
    }
}

fn timeout(options: &StoreOptions) -> String {
    format!("{} ms", options.timeout.as_millis())
}

fn plain_http(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|e| e.starts_with("http://"))
}

fn google(bucket: &str, options: &StoreOptions) -> object_store::Result<Backend> {
    let emulator = std::env::var("STORAGE_EMULATOR_HOST").ok().filter(|e| options.endpoint.is_none() && !e.is_empty());
    let mut builder = match &options.credentials_file {
        Some(file) => GoogleCloudStorageBuilder::new().with_application_credentials(file),
        None => GoogleCloudStorageBuilder::from_env(),
    };
    builder = builder
        .with_bucket_name(bucket)
        .with_retry(retry(options))
        .with_config(GoogleConfigKey::Client(ClientConfigKey::Timeout), timeout(options))
        .with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    if options.anonymous || emulator.is_some() {
        // The first is for writes, which the library signs even so; the second for reads.
        let nobody = GcpCredential { bearer: String::new() };
        builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(nobody))).with_skip_signature(true);
    }
    let emulator = emulator.map(|e| if e.contains("://") { e } else { format!("http://{e}") });
    if let Some(endpoint) = options.endpoint.as_ref().or(emulator.as_ref()) {
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    let store = Arc::new(builder.build()?);
    Ok(Backend::Bucket { objects: store.clone(), uploads: store.clone(), lists: store })
}

fn s3(bucket: &str, options: &StoreOptions) -> object_store::Result<Backend> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry(options))
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), timeout(options));
    let known = |builder: &AmazonS3Builder, key: AmazonS3ConfigKey| builder.get_config_value(&key).is_some();
    let own = known(&builder, AmazonS3ConfigKey::AccessKeyId)
        || known(&builder, AmazonS3ConfigKey::WebIdentityTokenFile)
        || known(&builder, AmazonS3ConfigKey::ContainerCredentialsRelativeUri)
        || known(&builder, AmazonS3ConfigKey::ContainerCredentialsFullUri)
        || options.access_key.is_some()
        || options.anonymous;
    let profile = Profile::of_environment();
    if let (false, Some(key), Some(secret)) = (own, &profile.access_key, &profile.secret_key) {
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        if let Some(token) = &profile.session_token {
            builder = builder.with_token(token);
        }
    }
    if let Some(key) = &options.access_key {
        builder = builder.with_access_key_id(key);
    }
    if let Some(secret) = &options.secret_key {
        builder = builder.with_secret_access_key(secret.reveal());
    }
    if let Some(token) = &options.session_token {
        builder = builder.with_token(token.reveal());
    }
    match (&options.region, &profile.region) {
        (Some(region), _) => builder = builder.with_region(region),
        (None, Some(region)) if !known(&builder, AmazonS3ConfigKey::Region) => builder = builder.with_region(region),
        _ => {}
    }
    if let Some(endpoint) = &options.endpoint {
        // This key wins over what the environment says under either name.
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    } else if let (Some(endpoint), false) = (&profile.endpoint, known(&builder, AmazonS3ConfigKey::Endpoint)) {
        builder = builder.with_endpoint(endpoint);
    }
    let endpoint =
        builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint).or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    if plain_http(endpoint.as_deref()) {
        builder = builder.with_allow_http(true);
    } else {
        // TLS protects the bytes already; hashing them once more costs a core at 500 MB/s.
        builder = builder.with_unsigned_payload(true);
    }
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let store = Arc::new(builder.build()?);
    Ok(Backend::Bucket { objects: store.clone(), uploads: store.clone(), lists: store })
}

fn azure(base: &str, options: &StoreOptions) -> object_store::Result<Backend> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    if let Some(account) = &options.account {
        builder = builder.with_account(account);
    }
    if let Some(key) = &options.secret_key {
        builder = builder.with_access_key(key.reveal());
    }
    builder =
        builder.with_url(base).with_retry(retry(options)).with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), timeout(options));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.clone()).with_allow_http(plain_http(Some(endpoint)));
    }
    if options.anonymous {
        builder = builder.with_skip_signature(true);
    }
    let store = Arc::new(builder.build()?);
    Ok(Backend::Bucket { objects: store.clone(), uploads: store.clone(), lists: store })
}

impl Client {
    /// The URL of a key, for messages and people.
    pub fn url(&self, key: &str) -> String {
        if key.starts_with('?') { format!("{}{key}", self.base) } else { format!("{}/{key}", self.base) }
    }

    /// The key as the library wants it.
    ///
    /// # Errors
    /// A key with empty segments, `.` or `..`, or control characters.
    pub fn path(&self, key: &str) -> Result<Path, StoreError> {
        Path::parse(key).map_err(|e| StoreError::new(Kind::Other, format!("'{}' is no key that can be asked for: {e}", self.url(key))))
    }

    pub fn failed(&self, doing: &str, key: &str, error: &object_store::Error) -> StoreError {
        StoreError::of(format!("{doing} '{}'", self.url(key)), self.scheme, error)
    }

    /// The library's account of an object as ours.
    pub fn object(&self, meta: &ObjectMeta) -> Object {
        let key = meta.location.to_string();
        let etag = meta.e_tag.clone().map(|tag| match self.scheme {
            // Azure lists tags without the quotes that belong to them.
            Scheme::Azure if !tag.starts_with('"') && !tag.starts_with("W/") => format!("\"{tag}\""),
            _ => tag,
        });
        Object { url: self.url(&key), key, size: meta.size, etag, modified_ms: meta.last_modified.timestamp_millis(), seekable: true }
    }

    /// The bucket's client.
    ///
    /// # Errors
    /// It is a web server, which `doing` is not for.
    pub fn bucket(&self, doing: &str) -> Result<Bucket, StoreError> {
        match &self.backend {
            Backend::Bucket { objects, uploads, lists } => {
                Ok(Bucket { objects: objects.clone(), uploads: uploads.clone(), lists: lists.clone() })
            }
            Backend::Web(_) => Err(StoreError::new(
                Kind::Other,
                format!("{doing} '{}': http and https are for reading single files; use 'gs://', 's3://' or 'az://'", self.base),
            )),
        }
    }
}

/// The faces of a bucket's client.
#[derive(Clone)]
pub(crate) struct Bucket {
    pub objects: Arc<dyn ObjectStore>,
    pub uploads: Arc<dyn MultipartStore>,
    pub lists: Arc<dyn PaginatedListStore>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expect: Result<(Scheme, &str, &str), &str>) {
        match (Place::parse(url), expect) {
            (Ok(place), Ok(expect)) => assert_eq!((place.scheme, place.host, place.key), expect),
            (Err(e), Err(expect)) => assert!(e.to_string().contains(expect), "{e}"),
            (got, expect) => panic!("{got:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn urls_taken_apart() {
        check("gs://b/a/x*.csv", Ok((Scheme::Google, "b", "a/x*.csv")));
        check("S3://b", Ok((Scheme::S3, "b", "")));
        check("s3://b/what?.csv", Ok((Scheme::S3, "b", "what?.csv")));
        check("abfss://c@a.dfs.core.windows.net/x", Ok((Scheme::Azure, "c@a.dfs.core.windows.net", "x")));
        check("https://h:81/a/b.zip?sig=1/2", Ok((Scheme::Http, "h:81", "a/b.zip?sig=1/2")));
        check("http://h?x=/1", Ok((Scheme::Http, "h", "?x=/1")));
        check("http://u:p@h/x", Err("has a login"));
        check("gs:///x", Err("names no bucket"));
        check("ftp://h/x", Err("scheme that is not known"));
        check("/data/x", Err("is no URL"));
    }
}
