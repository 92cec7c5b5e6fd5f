//! An issuer of tokens: publishes its keys over HTTP, rotates them, and can misbehave. Its tokens say whatever a test
//! wants them to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The issuer's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// The correct answer.
    Well,
    /// Not at all, until the client leaves.
    Never,
    /// With an error.
    Failing,
    /// With a redirect to an issuer that answers well.
    Elsewhere,
    /// With two megabytes.
    TooMuch,
    /// With a page for people.
    Html,
}

pub struct Issuer {
    /// The issuer's name, which is its URL.
    pub url: String,
    shared: Arc<IssuerState>,
}

struct IssuerState {
    url: String,
    state: Mutex<State>,
    /// The number of requests for the keys.
    asked: AtomicUsize,
}

struct State {
    answers: Answers,
    /// All keys that were ever made, with their ids. Those that are published come last.
    keys: Vec<(String, EcdsaKeyPair)>,
    published: usize,
}

impl Issuer {
    /// An issuer with one key, which it publishes.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = State { answers: Answers::Well, keys: vec![("key-1".to_owned(), new_key())], published: 1 };
        let shared = Arc::new(IssuerState { url: url.clone(), state: Mutex::new(state), asked: AtomicUsize::new(0) });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&serving), stream));
            }
        });
        Self { url, shared }
    }

    /// The table of `[auth]` for tokens of this issuer. `more`: further settings, each with a comma before it.
    pub fn settings(&self, more: &str) -> String {
        let url = &self.url;
        format!("{{ issuer = \"{url}\", audience = \"agents\", algorithms = [\"ES256\"]{more} }}")
    }

    pub fn answer(&self, answers: Answers) {
        self.shared.state().answers = answers;
    }

    /// The number of requests for the keys.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Signs with a new key from now on. `keep`: the one before it stays published.
    pub fn rotate(&self, keep: bool) {
        let mut state = self.shared.state();
        let id = format!("key-{}", state.keys.len() + 1);
        state.keys.push((id, new_key()));
        state.published = if keep { 2 } else { 1 };
    }

    /// A token of this subject for the next ten minutes.
    pub fn token(&self, subject: &str) -> String {
        self.token_with(subject, &json!({}))
    }

    /// The same with other claims. Null removes one.
    pub fn token_with(&self, subject: &str, changes: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let mut claims = json!({ "iss": self.url, "aud": "agents", "sub": subject, "exp": now + 600 });
        for (name, value) in changes.as_object().expect("changes are an object") {
            claims[name] = value.clone();
        }

        let state = self.shared.state();
        let (id, key) = state.keys.last().expect("a key");
        let header = json!({ "alg": "ES256", "kid": id, "typ": "JWT" });
        let message = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = key.sign(&SystemRandom::new(), message.as_bytes()).expect("a signature");
        format!("{message}.{}", encode(signature.as_ref()))
    }

    /// A token that is valid for about this many seconds more, clock differences included.
    pub fn token_for(&self, subject: &str, seconds: u64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        self.token_with(subject, &json!({ "exp": now + seconds - 60 }))
    }
}

impl IssuerState {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn document(&self, path: &str) -> Option<String> {
        let state = self.state();
        match path {
            "/.well-known/openid-configuration" => {
                Some(json!({ "issuer": self.url, "jwks_uri": format!("{}/jwks", self.url) }).to_string())
            }
            "/jwks" | "/elsewhere" => {
                let published = &state.keys[state.keys.len() - state.published..];
                let keys: Vec<Value> = published.iter().map(|(id, key)| jwk(id, key)).collect();
                Some(json!({ "keys": keys }).to_string())
            }
            _ => None,
        }
    }
}

fn new_key() -> EcdsaKeyPair {
    let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a new key");
    EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key")
}

fn jwk(id: &str, key: &EcdsaKeyPair) -> Value {
    let point = key.public_key().as_ref();
    let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
    json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256", "x": x, "y": y })
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

async fn serve(shared: Arc<IssuerState>, mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }

    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("").to_owned();
    if path == "/jwks" {
        shared.asked.fetch_add(1, Ordering::Relaxed);
    }

    let answers = if path == "/elsewhere" { Answers::Well } else { shared.state().answers };
    let (status, more, body) = match answers {
        Answers::Well => match shared.document(&path) {
            Some(document) => ("200 OK", String::new(), document),
            None => ("404 Not Found", String::new(), String::new()),
        },
        Answers::Never => return std::future::pending().await,
        Answers::Failing => ("500 Internal Server Error", String::new(), String::new()),
        Answers::Elsewhere => ("302 Found", format!("location: {}/elsewhere\r\n", shared.url), String::new()),
        Answers::TooMuch => ("200 OK", String::new(), format!("{{\"keys\":[{}]}}", " ".repeat(2 << 20))),
        Answers::Html => ("200 OK", String::new(), "<html>Sign in</html>".to_owned()),
    };
    let answer =
        format!("HTTP/1.1 {status}\r\n{more}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    // The client may leave before the end.
    let _ = stream.write_all(answer.as_bytes()).await;
}
