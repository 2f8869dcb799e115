//! Which authorities connections trust that are encrypted: a file of the user's, or those that the system trusts.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::ConnectError;

/// Where systems keep the certificates that they trust.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/etc/openssl/cert.pem",
];

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// The certificates to trust, in PEM form: those in `file`, or else those of the system or of the variable
/// `SSL_CERT_FILE`. `option` is what a user names a file with, for messages.
///
/// # Errors
/// There are none, or they cannot be read.
pub fn trusted(file: Option<&Path>, option: &str) -> Result<Vec<u8>, ConnectError> {
    let read =
        |path: &Path| fs::read(path).map_err(|e| ConnectError::io(format_args!("reading the certificates in '{}'", path.display()), &e));
    if let Some(path) = file {
        let pem = read(path)?;
        if !pem.windows(BEGIN.len()).any(|w| w == BEGIN) {
            return Err(ConnectError::new(format!("'{}' holds no certificate in PEM form", path.display())));
        }
        return Ok(pem);
    }
    let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    for path in named.iter().map(PathBuf::as_path).chain(SYSTEM.iter().map(Path::new)) {
        match fs::read(path) {
            Ok(pem) => return Ok(pem),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(_) => return read(path),
        }
    }
    Err(ConnectError::new(format!("no certificates that the system trusts were found; name a file with '{option}'")))
}
