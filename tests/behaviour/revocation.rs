//! Credentials that end during an active request of their caller, for each kind of credentials and each way to end: a
//! waiting turn is not begun, and streams end with them or continue, according to `revoke_streams`.
//!
//! Not here: WebSockets (`access.rs`), push notifications (`a2a_push.rs`), and later requests (`keys.rs`, `tokens.rs`).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlingua::keys::{NewKey, append, revoke};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::callers::{key_of, write_keys};
use crate::support::gateway::{Gateway, ROUTE, agent, user_turn_in};
use crate::support::http::{request, with_timeout};
use crate::support::issuer::Issuer;
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::tls::{Authority, VERSIONS, client, connect};
use crate::support::upstream::Upstream;

const RUNS: &str = "/agents/friday/runs";
const PROCESS: &str = "/agents/friday/process";
/// Validity of credentials that expire: long enough to start two requests on a busy machine.
const LIFETIME: u64 = 10;

/// The end of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    KeyRevoked,
    KeyExpired,
    TokenExpired,
    CertificateExpired,
    AuthorityReplaced,
}

/// A client with its credentials.
struct Client {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    bearer: Option<String>,
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// The response to a request, as far as it was read.
struct Answer {
    stream: Box<dyn Duplex>,
    text: String,
}

impl Client {
    async fn send(&self, method: &str, path: &str, body: &str) -> std::io::Result<Answer> {
        let mut headers = vec![("content-type", "application/json"), ("connection", "close")];
        if let Some(bearer) = &self.bearer {
            headers.push(("authorization", bearer));
        }
        let mut stream: Box<dyn Duplex> = match &self.tls {
            Some(tls) => Box::new(connect(self.address, tls).await?),
            None => Box::new(TcpStream::connect(self.address).await?),
        };
        stream.write_all(&request(method, path, &headers, body.as_bytes())).await?;
        Ok(Answer { stream, text: String::new() })
    }

    async fn turn(&self, text: &str, streamed: bool) -> Answer {
        let mut body = user_turn_in("s1", text);
        body["stream"] = streamed.into();
        self.send("POST", PROCESS, &body.to_string()).await.expect("a request")
    }

    /// The runs of the caller, if it is let in.
    async fn runs(&self) -> Option<serde_json::Value> {
        let mut answer = self.send("GET", RUNS, "").await.ok()?;
        let text = answer.rest().await;
        let body = text.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200 "))?.1;
        Some(serde_json::from_str(body).expect("JSON"))
    }
}

impl Answer {
    async fn read_until(&mut self, wanted: &str) {
        with_timeout("a part of the answer", async {
            while !self.text.contains(wanted) {
                assert!(self.read().await, "no {wanted:?} in {}", self.text);
            }
        })
        .await;
    }

    /// All of it. A connection that is closed without the end of TLS has ended, too.
    async fn rest(&mut self) -> String {
        with_timeout("the end of the answer", async { while self.read().await {} }).await;
        self.text.clone()
    }

    async fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes).await {
            Ok(count) if count > 0 => {
                self.text.push_str(&String::from_utf8_lossy(&bytes[..count]));
                true
            }
            _ => false,
        }
    }
}

/// Ann's credentials, and what can end them.
struct Credentials {
    issuer: Issuer,
    servers: Authority,
    clients: Authority,
    folder: tempfile::TempDir,
}

fn now() -> u64 {
    interlingua::clock::now()
}

impl Credentials {
    async fn prepare() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (servers, clients) = (Authority::new(), Authority::new());
        servers.server().write(folder.path());
        std::fs::write(folder.path().join("clients.pem"), clients.pem()).expect("a file");
        Self { issuer: Issuer::start().await, servers, clients, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `[server]` and `[auth]`.
    fn config(&self, end: End, revokes_streams: bool) -> String {
        let (tls, auth) = match end {
            End::KeyRevoked | End::KeyExpired => ("", "keys = \"keys.toml\"".to_owned()),
            End::TokenExpired => ("", format!("jwt = [{}]", self.issuer.settings(""))),
            End::CertificateExpired | End::AuthorityReplaced => (
                "tls = { cert = \"cert.pem\", key = \"key.pem\", client_ca = \"clients.pem\" }\n",
                "certificates = { caller = \"san_uri\" }".to_owned(),
            ),
        };
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{tls}[store]\nkind = \"memory\"\n\
             [auth]\nrevoke_streams = {revokes_streams}\n{auth}\n"
        )
    }

    /// Makes what ends, and the client that shows it. The key's id is needed to revoke it.
    fn make(&self, end: End, address: SocketAddr) -> (Client, Option<NewKey>) {
        let (mut client_of, mut made) = (Client { address, tls: None, bearer: None }, None);
        match end {
            End::KeyRevoked | End::KeyExpired => {
                let key = NewKey::generate().expect("a key");
                let expires = (end == End::KeyExpired).then(|| now() + LIFETIME * 1000);
                append(&self.path().join("keys.toml"), &key, "ann", now(), expires).expect("the key is added");
                client_of.bearer = Some(format!("Bearer {}", key.text));
                made = Some(key);
            }
            End::TokenExpired => client_of.bearer = Some(format!("Bearer {}", self.issuer.token_for("ann", LIFETIME))),
            End::CertificateExpired | End::AuthorityReplaced => {
                let (uri, dns) = ("spiffe://example.com/ann", "ann.example.com");
                let identity = match end {
                    End::CertificateExpired => self.clients.client_until(uri, dns, now() / 1000 + LIFETIME),
                    _ => self.clients.client(uri, dns),
                };
                client_of.tls = Some(client(&self.servers, Some(&identity), &VERSIONS));
            }
        }
        (client_of, made)
    }

    /// Ends credentials that do not end by themselves.
    fn end(&self, end: End, key: Option<&NewKey>) {
        match end {
            End::KeyRevoked => {
                let key = key.expect("a key to revoke");
                revoke(&self.path().join("keys.toml"), &key.id, now()).expect("the key is there");
            }
            End::AuthorityReplaced => {
                std::fs::write(self.path().join("clients.pem"), Authority::new().pem()).expect("a file");
            }
            End::KeyExpired | End::TokenExpired | End::CertificateExpired => {}
        }
    }
}

/// One turn of a session streams, a second one waits for it, and a third thing happens: the credentials end.
async fn test(end: End, revokes_streams: bool) {
    let mut replies = vec![text_reply(&["the second"]), text_reply_until(&["the first"], "end")];
    let upstream = Upstream::with_handler(move |_| replies.pop().unwrap_or_else(|| text_reply(&["more"])));
    let credentials = Credentials::prepare().await;
    let friday = agent("friday", &upstream.url("/process"), "", "");
    let config = format!("{}{friday}{ROUTE}", credentials.config(end, revokes_streams));
    let gateway = Gateway::in_folder(&config, credentials.path().to_owned()).await;
    let (ann, key) = credentials.make(end, gateway.address);
    // A key that was just made is known within a second.
    poll_until("ann to be let in", async || ann.runs().await).await;

    let mut streaming = ann.turn("one", true).await;
    streaming.read_until("the first").await;
    let mut waiting = ann.turn("two", false).await;
    poll_until("both runs", async || ann.runs().await.filter(|runs| runs["data"].as_array().map(Vec::len) == Some(2)))
        .await;

    credentials.end(end, key.as_ref());
    poll_until("ann to be refused", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ann.runs().await.is_none().then_some(())
    })
    .await;
    if revokes_streams {
        let text = streaming.rest().await;
        assert!(text.contains("AUTH_FAILED") && text.contains("\"failed\""), "{end:?}: in its protocol: {text}");
    } else {
        upstream.open("end");
        let text = streaming.rest().await;
        assert!(text.contains("\"completed\"") && !text.contains("AUTH_FAILED"), "{end:?}: {text}");
    }

    let refused = waiting.rest().await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{end:?}: {refused}");
    assert!(refused.contains("AUTH_FAILED") && !refused.contains("the second"), "{end:?}: {refused}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(upstream.requests().len(), 1, "{end:?}: the agent was not asked again");
}

#[tokio::test]
async fn a_revoked_key() {
    tokio::join!(test(End::KeyRevoked, false), test(End::KeyRevoked, true));
}

#[tokio::test]
async fn an_expired_key() {
    tokio::join!(test(End::KeyExpired, false), test(End::KeyExpired, true));
}

#[tokio::test]
async fn an_expired_token() {
    tokio::join!(test(End::TokenExpired, false), test(End::TokenExpired, true));
}

#[tokio::test]
async fn an_expired_certificate() {
    tokio::join!(test(End::CertificateExpired, false), test(End::CertificateExpired, true));
}

#[tokio::test]
async fn a_certificate_whose_authority_was_replaced() {
    tokio::join!(test(End::AuthorityReplaced, false), test(End::AuthorityReplaced, true));
}

/// A route with several agents: the caller keeps the right to use the route, but not the agent of the open stream.
#[tokio::test]
async fn a_stream_of_a_shared_route_ends_with_the_right_to_use_its_agent() {
    const ADMIN_KEY: &str = "a key of at least thirty-two characters";
    let upstream = Upstream::always(text_reply_until(&["the first"], "end"));
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann"]);
    std::fs::write(folder.path().join("admin.key"), ADMIN_KEY).expect("a file");
    let write = |agents: &str| {
        let url = upstream.url("/process");
        let (friday, other) = (agent("friday", &url, "", ""), agent("other", &url, "", ""));
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n[admin]\n\
             listen = \"127.0.0.1:0\"\nkey = {{ file = \"admin.key\" }}\n[auth]\nkeys = \"keys.toml\"\n\
             revoke_streams = true\n[callers.ann]\nagents = {agents}\n{friday}{other}\
             [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n"
        );
        std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    };
    write("[\"friday\", \"other\"]");
    let process = Process::start(folder.path());
    let body = r#"{"model":"friday","input":"hello","stream":true}"#;
    let bearer = format!("Bearer {}", key_of("ann"));
    let ann = Client { address: process.address, tls: None, bearer: Some(bearer) };
    let mut streaming = ann.send("POST", "/v1/responses", body).await.expect("a request");
    streaming.read_until("the first").await;

    write("[\"other\"]");
    let bearer = format!("Bearer {ADMIN_KEY}");
    let reloaded = process.operate("POST", "/api/reload", &[("authorization", &bearer)], b"").await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let text = streaming.rest().await;
    assert!(text.contains("you may not use agent 'friday'"), "{text}");
}
