//! For tests: an authority, a certificate of localhost and 127.0.0.1 by it, good until 2120, and another authority. Made for
//! these tests and used nowhere else.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What a server with the certificate speaks TLS by.
pub(crate) fn encryption() -> Arc<ServerConfig> {
    let certificates = vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(certificates, key).unwrap())
}

/// The authority.
pub(crate) const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBVDCB+6ADAgECAgEBMAoGCCqGSM49BAMCMBkxFzAVBgNVBAMMDlRlc3QgYXV0
aG9yaXR5MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAZMRcwFQYD
VQQDDA5UZXN0IGF1dGhvcml0eTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABA1O
A/CoqL9+ILFaMjG6DbzQ6Ni97IOqA8TCyTcB8EgrpReoet1xz0oSecaCXdOEXFZG
d8g+Oi36Wn9log4afYejMjAwMA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0OBBYEFCjI
8dl5m6gyzZzBtc1Poakow1RiMAoGCCqGSM49BAMCA0gAMEUCIQDEKsXC6NIZ74Do
0S+LUk8+LR+YGV7FtCNphQ3YfvwSrAIgJRhUL2/Olt+nvVmk2CO6boOBkFS3A8uv
OiN442lOiZc=
-----END CERTIFICATE-----";

/// The certificate.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBhjCCAS2gAwIBAgIBAjAKBggqhkjOPQQDAjAZMRcwFQYDVQQDDA5UZXN0IGF1
dGhvcml0eTAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowFDESMBAG
A1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE04DXslLF
0Yy4acIuvuWswfyGYh/sYSTiLg14QcYS0XTO3jiyWfvURtwqvGwaWwNRNrpPNfrY
zQ7lufMoLJ6hOqNpMGcwCQYDVR0TBAIwADAaBgNVHREEEzARgglsb2NhbGhvc3SH
BH8AAAEwHQYDVR0OBBYEFHho0s0dW2j7OeTFkKfzeMUp0WbjMB8GA1UdIwQYMBaA
FCjI8dl5m6gyzZzBtc1Poakow1RiMAoGCCqGSM49BAMCA0cAMEQCIC1bH6H23dlj
t3LFsoUrMOxwBfcrNsSQRCPBcahiwpHZAiBksSFeb452PK+WITG+UT4QWLBOK3iM
5XbVro5TuanYBA==
-----END CERTIFICATE-----";

/// The certificate's private key.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg9hD/yWLjHKQ1EUVi
rFdgujgN+YKx1LCsXxS65v0XcOChRANCAATTgNeyUsXRjLhpwi6+5azB/IZiH+xh
JOIuDXhBxhLRdM7eOLJZ+9RG3Cq8bBpbA1E2uk81+tjNDuW58ygsnqE6
-----END PRIVATE KEY-----";

/// The other authority.
pub(crate) const OTHER_AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBVTCB/aADAgECAgEBMAoGCCqGSM49BAMCMBoxGDAWBgNVBAMMD090aGVyIGF1
dGhvcml0eTAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowGjEYMBYG
A1UEAwwPT3RoZXIgYXV0aG9yaXR5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
JjslzJhksZ8DH08WPsBPCUxfdt4wezn5LhaZcrCtWlMxr/aYffZhSmATc0Kr5q0f
lLHmfb7tEiqgJdLX9Rw+CqMyMDAwDwYDVR0TAQH/BAUwAwEB/zAdBgNVHQ4EFgQU
GEj64aUMUU7BcuxvlZEEO9clGIYwCgYIKoZIzj0EAwIDRwAwRAIgQK+AxNP7B5Og
OXnbRsZSKz8WhGuCBaLs9Rtm9zAFbYICICaFbRO9Dl5g4t8h2yevrG4+KHdoUJDQ
aOGfvpQpwObc
-----END CERTIFICATE-----";
