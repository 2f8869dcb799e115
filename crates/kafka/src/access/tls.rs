//! Encryption of connections of our own, from the properties that librdkafka has for its own.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidemill_connect::certificates::trusted;

use crate::properties::Connection;

/// The properties that are heeded; any other that begins with `ssl.` is refused.
const KNOWN: &[&str] = &[
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.endpoint.identification.algorithm",
];

/// How connections are encrypted.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// As a table's properties say.
    ///
    /// # Errors
    /// A property that is not known here; files that cannot be read or hold something else.
    pub fn of(connection: &Connection) -> Result<Self, String> {
        let unknown = |name: &&str| name.starts_with("ssl.") && !KNOWN.contains(name);
        if let Some(name) = connection.names().find(unknown) {
            return Err(format!("'properties.{name}'"));
        }
        // Whoever is not to be checked is to be trusted by its certificate.
        let checks = [("enable.ssl.certificate.verification", "true"), ("ssl.endpoint.identification.algorithm", "https")];
        for (name, only) in checks {
            if let Some(other) = connection.property(name).filter(|value| !value.trim().eq_ignore_ascii_case(only)) {
                return Err(format!("'properties.{name}' = '{other}': name the certificate to trust by 'properties.ssl.ca.location'"));
            }
        }
        let roots = match given(connection, "ssl.ca")? {
            Some(pem) => pem,
            None => trusted(None, "properties.ssl.ca.location").map_err(|e| e.to_string())?,
        };
        let own = match (given(connection, "ssl.certificate")?, given(connection, "ssl.key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("'properties.ssl.certificate.location' and 'properties.ssl.key.location' need each other".to_string()),
        };
        Self::new(&roots, own.as_ref().map(|(certificate, key)| (certificate.as_slice(), key.as_slice())))
    }

    /// Trusts the authorities in `roots`, and shows a certificate of its own, with its key, if one is given; all in PEM form.
    ///
    /// # Errors
    /// They hold something else.
    pub fn new(roots: &[u8], own: Option<(&[u8], &[u8])>) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        // A file of many may hold some of a kind that is not known here.
        let (added, _) = store.add_parsable_certificates(CertificateDer::pem_slice_iter(roots).filter_map(Result::ok));
        if added == 0 {
            return Err("no certificate to trust can be used; 'properties.ssl.ca.location' names a file of them in PEM form".to_string());
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| format!("setting up encryption: {e}"))?.with_root_certificates(store);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
                let chain = chain.map_err(|e| format!("reading the own certificate ('properties.ssl.certificate.location'): {e}"))?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|e| format!("reading the own key ('properties.ssl.key.location'): {e}; one with a password is not known"))?;
                builder.with_client_auth_cert(chain, key).map_err(|e| format!("the own certificate and its key: {e}"))?
            }
        };
        Ok(Tls(Arc::new(config)))
    }

    /// Encrypts a connection to `host:port`, whose certificate must name the host.
    ///
    /// # Errors
    /// What the broker shows is not trusted; the connection fails. With the address.
    pub fn over(&self, mut stream: TcpStream, address: &str) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let name = ServerName::try_from(bare).map_err(|e| format!("{address}: the host's name: {e}"))?;
        let mut connection = ClientConnection::new(self.0.clone(), name).map_err(|e| format!("{address}: encryption: {e}"))?;
        let greeted = connection.complete_io(&mut stream);
        greeted.map_err(|e| format!("{address}: encryption: {e}; what is trusted is said by 'properties.ssl.ca.location'"))?;
        Ok(StreamOwned::new(connection, stream))
    }
}

/// What a property gives in PEM form, as the text itself or as the name of a file; none if it is not there.
fn given(connection: &Connection, name: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(pem) = connection.property(&format!("{name}.pem")) {
        return Ok(Some(pem.as_bytes().to_vec()));
    }
    // librdkafka looks for the system's certificates itself where it is told to probe.
    let Some(path) = connection.property(&format!("{name}.location")).filter(|path| *path != "probe") else { return Ok(None) };
    let read = fs::read(path);
    read.map(Some).map_err(|e| format!("'properties.{name}.location': reading '{path}': {e}"))
}
