//! Servers between the gateway and an agent: a server that speaks TLS, and a proxy. Both record their requests.
//!
//! Each has its own thread. Not here: the agent behind them ([`super::upstream`]).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::tls::{Authority, Identity};

/// A handshake that was completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The name that the client asked for.
    pub name: Option<String>,
    pub has_certificate: bool,
}

/// Speaks TLS for an agent that does not. It stops when it is dropped.
pub struct TlsFront {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Handshake>>>,
    _server: Server,
}

impl TlsFront {
    /// In front of an agent, with this certificate. `clients`: signs the certificates that clients may show;
    /// `is_required`: and have to.
    pub fn start(agent: SocketAddr, identity: &Identity, clients: &Authority, is_required: bool) -> Self {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(clients.pem().as_bytes()).expect("a certificate");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(identity.chain(), key)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));

        let seen: Arc<Mutex<Vec<Handshake>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let (address, server) = Server::start(move |stream| {
            let (acceptor, noted) = (acceptor.clone(), Arc::clone(&noted));
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let session = stream.get_ref().1;
                let name = session.server_name().map(str::to_owned);
                let has_certificate = session.peer_certificates().is_some();
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(Handshake { name, has_certificate });
                if let Ok(mut agent) = TcpStream::connect(agent).await {
                    let _ = copy_bidirectional(&mut stream, &mut agent).await;
                }
            }
        });
        Self { address, seen, _server: server }
    }

    /// The handshakes completed so far.
    pub fn handshakes(&self) -> Vec<Handshake> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The URL of a path at a host that leads here.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.address.port())
    }
}

/// A proxy. It stops when it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    _server: Server,
}

impl Proxy {
    /// One that refuses requests whose first line holds one of these texts.
    pub fn refusing(refused: &[String]) -> Self {
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noted, refused) = (Arc::clone(&heads), refused.to_vec());
        let (address, server) = Server::start(move |mut stream| {
            let (noted, refused) = (Arc::clone(&noted), refused.clone());
            async move {
                let mut read = Vec::new();
                while !read.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read_buf(&mut read).await {
                        Ok(1..) => {}
                        _ => return,
                    }
                }
                let text = String::from_utf8_lossy(&read).into_owned();
                let head = text.split("\r\n\r\n").next().unwrap_or_default().to_owned();
                let first = head.lines().next().unwrap_or_default().to_owned();
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                if refused.iter().any(|part| first.contains(part.as_str())) {
                    let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
                    return;
                }

                let target = first.split(' ').nth(1).unwrap_or_default();
                let authority = target.trim_start_matches("http://").split('/').next().unwrap_or_default();
                let Ok(mut agent) = TcpStream::connect(authority).await else { return };
                let passed = if first.starts_with("CONNECT ") {
                    stream.write_all(b"HTTP/1.1 200 Established\r\n\r\n").await
                } else {
                    agent.write_all(&read).await
                };
                if passed.is_ok() {
                    let _ = copy_bidirectional(&mut stream, &mut agent).await;
                }
            }
        });
        Self { address, heads, _server: server }
    }

    pub fn start() -> Self {
        Self::refusing(&[])
    }

    /// The first head on each connection so far, in lower case.
    pub fn heads(&self) -> Vec<String> {
        let heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        heads.iter().map(|head| head.to_lowercase()).collect()
    }
}

/// Serves connections on a thread until it is dropped.
struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> (SocketAddr, Self) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
                let accept = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(serve(stream));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        (address, Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
