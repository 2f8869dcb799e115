//! Encryption of connections, as `ssl-mode` says.
//!
//! `prefer` and `require` encrypt and take any certificate, as PostgreSQL's own clients do; passwords are
//! still safe from somebody in between where the server asks for them by SCRAM, which is bound to the
//! certificate. `verify-full` takes a certificate for the host only, signed by an authority that the system
//! trusts or that is in the file `ssl-ca`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::driver::DbError;

/// Where systems keep the certificates that they trust.
const SYSTEM_CERTIFICATES: &[&str] = &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// What makes encrypted connections; see [`client_config`].
///
/// # Errors
/// No certificates to trust.
pub(super) fn connector(verify: bool, authorities: Option<&Path>) -> Result<MakeRustlsConnect, DbError> {
    Ok(MakeRustlsConnect::new(client_config(verify, authorities)?))
}

/// How connections are encrypted. `verify`: the server's certificate must be trusted and name the host.
///
/// # Errors
/// No certificates to trust.
pub(super) fn client_config(verify: bool, authorities: Option<&Path>) -> Result<ClientConfig, DbError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| DbError::fatal(format!("setting up encryption: {e}")))?;
    Ok(if verify {
        builder.with_root_certificates(roots(authorities)?).with_no_client_auth()
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))).with_no_client_auth()
    })
}

/// The certificates that are trusted.
///
/// # Errors
/// There are none.
pub(crate) fn roots(file: Option<&Path>) -> Result<RootCertStore, DbError> {
    let system = || std::env::var_os("SSL_CERT_FILE").map(PathBuf::from).into_iter().chain(SYSTEM_CERTIFICATES.iter().map(PathBuf::from));
    let path = match file {
        Some(file) => file.to_path_buf(),
        None => system()
            .find(|path| path.exists())
            .ok_or_else(|| DbError::fatal("no certificates that the system trusts were found; name a file of them with ssl-ca in 'url'"))?,
    };
    let pem = std::fs::read(&path).map_err(|e| DbError::fatal(format!("reading the certificates in '{}': {e}", path.display())))?;
    let mut roots = RootCertStore::empty();
    // A file of many may hold some of a kind that is not known here.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if roots.is_empty() {
        return Err(DbError::fatal(format!("'{}' holds no certificate in PEM form that can be used", path.display())));
    }
    Ok(roots)
}

/// Takes any certificate, but only from who holds its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
