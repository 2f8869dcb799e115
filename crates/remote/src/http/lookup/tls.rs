//! Encryption of lookups' connections.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidemill_connect::ConnectError;
use tokio_rustls::TlsConnector;

use crate::flight::client::certificates;

/// How connections to a host are encrypted.
#[derive(Clone)]
pub(super) struct Tls {
    pub connector: TlsConnector,
    pub name: ServerName<'static>,
}

impl Tls {
    /// For `host`, trusting the certificates in `file`, or those that the system trusts.
    ///
    /// # Errors
    /// No certificates, a host that no certificate can name.
    pub fn new(host: &str, file: Option<&Path>) -> Result<Self, ConnectError> {
        let pem = certificates(file)?;
        let mut roots = RootCertStore::empty();
        // A file of many may hold some of a kind that is not known here.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
        if roots.is_empty() {
            return Err(ConnectError::new("option 'ca-file': none of its certificates can be used"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| ConnectError::new(format!("setting up encryption: {e}")))?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let name = ServerName::try_from(bare).map_err(|e| ConnectError::new(format!("option 'url': the host '{host}': {e}")))?;
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), name })
    }
}
