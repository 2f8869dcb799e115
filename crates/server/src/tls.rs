//! TLS: the certificate and key of the server, read anew when they change, so that a renewed certificate
//! is in force without a restart.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::{TlsFiles, log};

/// The times at which both files changed last.
type Stamps = [Option<SystemTime>; 2];

/// What a handshake needs.
pub struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    seen: Mutex<Stamps>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else, or a key that is not the certificate's.
    pub fn open(files: TlsFiles) -> Result<Self, String> {
        let seen = stamps(&files);
        let config = config(&files)?;
        Ok(Tls { files, config: RwLock::new(Arc::new(config)), seen: Mutex::new(seen) })
    }

    /// Does handshakes with the newest certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.read().expect("no panic while held").clone())
    }

    /// Reads the files again if one of them changed. While they do not fit each other, as between two
    /// renames, the earlier ones stay in force.
    pub fn refresh(&self) {
        let mut seen = self.seen.lock().expect("no panic while held");
        let now = stamps(&self.files);
        if *seen == now {
            return;
        }
        *seen = now;
        match config(&self.files) {
            Ok(config) => {
                *self.config.write().expect("no panic while held") = Arc::new(config);
                log(format_args!("certificate '{}' read anew", self.files.cert.display()));
            }
            Err(e) => log(format_args!("{e}; the certificate read before stays in force")),
        }
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    [&files.cert, &files.key].map(|path| fs::metadata(path).and_then(|m| m.modified()).ok())
}

fn config(files: &TlsFiles) -> Result<ServerConfig, String> {
    let wrong = |what: &str, path: &Path, e: &dyn std::fmt::Display| format!("{what} '{}': {e}; expected a PEM file", path.display());
    let of_cert = |e: rustls::pki_types::pem::Error| wrong("certificate", &files.cert, &e);
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(&files.cert).map_err(of_cert)?.collect::<Result<_, _>>().map_err(of_cert)?;
    if certificates.is_empty() {
        return Err(wrong("certificate", &files.cert, &"it holds no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| wrong("private key", &files.key, &e))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("setting TLS up: {e}"))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|e| format!("certificate '{}' with private key '{}': {e}", files.cert.display(), files.key.display()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
