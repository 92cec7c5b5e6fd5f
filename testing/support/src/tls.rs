//! Certificates for tests, made when they run, and a client that speaks TLS.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http::with_timeout;

/// Both versions that the gateway speaks.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// Signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, both in PEM.
pub struct Identity {
    pub cert: String,
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, key()).expect("an authority"))
    }

    /// Its certificate.
    pub fn pem(&self) -> String {
        self.0.as_ref().pem()
    }

    /// An identity of a server on this machine.
    pub fn server(&self) -> Identity {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("parameters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// An identity of a server of this name, and of no other.
    pub fn server_named(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).expect("parameters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// An identity of a client with a URI and a DNS name.
    pub fn client(&self, uri: &str, dns: &str) -> Identity {
        self.sign(&client_params(uri, dns))
    }

    /// The same, valid until a time in seconds since 1970.
    pub fn client_until(&self, uri: &str, dns: &str, until: u64) -> Identity {
        let mut params = client_params(uri, dns);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(until);
        self.sign(&params)
    }

    /// One that has expired.
    pub fn expired_client(&self) -> Identity {
        let mut params = client_params("spiffe://example.com/late", "late.example.com");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = key();
        let cert = params.signed_by(&key, &self.0).expect("a certificate");
        Identity { cert: cert.pem(), key: key.serialize_pem() }
    }
}

impl Identity {
    /// Writes `cert.pem` and `key.pem` into a folder.
    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join("cert.pem"), &self.cert).expect("a file");
        std::fs::write(folder.join("key.pem"), &self.key).expect("a file");
    }

    /// The certificate in DER.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate")]
    }
}

fn client_params(uri: &str, dns: &str) -> CertificateParams {
    let mut params = CertificateParams::new([dns.to_owned()]).expect("parameters");
    params.subject_alt_names.push(SanType::URI(uri.try_into().expect("ASCII")));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

/// A client that trusts one authority, and may show a certificate.
pub fn client(
    trusted: &Authority,
    identity: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).expect("a certificate")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
    let builder = builder.with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(identity.chain(), key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// The same client for HTTP/2.
pub fn over_http2(client: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = client.clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Connects and shakes hands.
pub async fn connect(address: SocketAddr, client: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    with_timeout("the handshake", TlsConnector::from(Arc::clone(client)).connect(name, stream)).await
}

/// Sends a request and reads until the connection ends, which the request has to ask for.
pub async fn exchange(address: SocketAddr, client: &Arc<ClientConfig>, request: &[u8]) -> io::Result<String> {
    let mut stream = connect(address, client).await?;
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    with_timeout("the answer", stream.read_to_end(&mut answer)).await?;
    Ok(String::from_utf8(answer).expect("text"))
}

/// Asks for a path.
pub async fn get(address: SocketAddr, client: &Arc<ClientConfig>, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\n\r\n", address.port());
    exchange(address, client, request.as_bytes()).await
}
