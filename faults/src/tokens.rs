//! An issuer of tokens that a scenario can break: its key set, its tokens, and how it answers.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

use crate::server::{self, Server};

/// An issuer's answer to a request for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Well,
    /// Not before the gateway has left.
    Never,
    /// One byte a second.
    Slowly,
    /// With two megabytes.
    Huge,
    /// By closing the connection.
    Gone,
    /// With an error.
    Failing,
    /// With a redirect to where the keys are.
    Elsewhere,
    /// With a set that is no JSON.
    Garbage,
}

pub(crate) struct Issuer {
    shared: Arc<IssuerState>,
    server: Server,
}

struct IssuerState {
    state: Mutex<State>,
    asked: AtomicU64,
}

struct State {
    answers: Answers,
    /// Every key that was ever made.
    keys: Vec<Key>,
    /// The number of latest keys that are published.
    published: usize,
}

struct Key {
    id: String,
    pair: EcdsaKeyPair,
}

impl Issuer {
    pub(crate) fn start() -> Result<Self> {
        let state = State { answers: Answers::Well, keys: vec![Key::new(1)?], published: 1 };
        let shared = Arc::new(IssuerState { state: Mutex::new(state), asked: AtomicU64::new(0) });
        let answering = Arc::clone(&shared);
        let server = Server::start(move |request, connection| {
            let body = answering.key_set();
            if request.path() == "/elsewhere" {
                return server::answer(connection, "200 OK", "application/json", body.as_bytes());
            }
            answering.asked.fetch_add(1, Ordering::Relaxed);
            let answers = answering.state().answers;
            match answers {
                Answers::Well => server::answer(connection, "200 OK", "application/json", body.as_bytes()),
                Answers::Gone => Ok(false),
                Answers::Never => {
                    std::thread::sleep(Duration::from_secs(60));
                    Ok(false)
                }
                Answers::Slowly => {
                    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{")?;
                    loop {
                        std::thread::sleep(Duration::from_secs(1));
                        connection.write_all(b" ")?;
                    }
                }
                Answers::Huge => {
                    let huge = format!("{}{}", body.trim_end_matches('}'), " ".repeat(2 << 20)) + "}";
                    server::answer(connection, "200 OK", "application/json", huge.as_bytes())
                }
                Answers::Failing => server::answer(connection, "500 Internal Server Error", "text/plain", b"no"),
                Answers::Elsewhere => {
                    connection.write_all(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")?;
                    Ok(true)
                }
                Answers::Garbage => server::answer(connection, "200 OK", "text/html", b"<html>Sign in</html>"),
            }
        })?;
        Ok(Self { shared, server })
    }

    /// The table of `[auth]` for its tokens.
    pub(crate) fn settings(&self) -> String {
        let (name, url) = (self.server.url(""), self.server.url("/jwks"));
        format!(
            "[auth]\njwt = [{{ issuer = \"{name}\", audience = \"agents\", algorithms = [\"ES256\"], jwks = {{ url = \"{url}\" }} }}]\n"
        )
    }

    pub(crate) fn answer(&self, answers: Answers) {
        self.shared.state().answers = answers;
    }

    /// The number of requests for its keys.
    pub(crate) fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Signs with a new key from now on, and publishes the last `published` ones.
    pub(crate) fn rotate(&self, published: usize) -> Result<()> {
        let mut state = self.shared.state();
        let key = Key::new(state.keys.len() + 1)?;
        state.keys.push(key);
        state.published = published;
        Ok(())
    }

    /// A token of this subject for ten minutes, by the newest key.
    pub(crate) fn token(&self, subject: &str) -> String {
        let state = self.shared.state();
        let key = state.keys.last().expect("there is always a key");
        key.sign(&format!(r#","kid":"{}""#, key.id), &self.claims(subject))
    }

    /// One without the id of its key.
    pub(crate) fn token_without_id(&self, subject: &str) -> String {
        let state = self.shared.state();
        state.keys.last().expect("there is always a key").sign("", &self.claims(subject))
    }

    /// One by a key of someone else that claims to be the newest of the issuer, or to have another id.
    pub(crate) fn forged(&self, subject: &str, id: Option<&str>) -> Result<String> {
        let claimed = self.shared.state().keys.last().expect("there is always a key").id.clone();
        let id = id.unwrap_or(&claimed);
        Ok(Key::new(0)?.sign(&format!(r#","kid":"{id}""#), &self.claims(subject)))
    }

    fn claims(&self, subject: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        format!(r#"{{"iss":"{}","aud":"agents","sub":"{subject}","exp":{}}}"#, self.server.url(""), now + 600)
    }
}

impl IssuerState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key_set(&self) -> String {
        let state = self.state();
        let keys: Vec<_> = state.keys[state.keys.len() - state.published..].iter().map(Key::jwk).collect();
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }
}

impl Key {
    fn new(number: usize) -> Result<Self> {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let failed = |_| anyhow::anyhow!("no key can be made");
        let text = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(failed)?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, text.as_ref(), &random)
            .map_err(|reason| anyhow::anyhow!("no key can be made: {reason}"))?;
        Ok(Self { id: format!("key-{number}"), pair })
    }

    fn jwk(&self) -> String {
        let point = self.pair.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        let id = &self.id;
        format!(r#"{{"kty":"EC","crv":"P-256","kid":"{id}","use":"sig","alg":"ES256","x":"{x}","y":"{y}"}}"#)
    }

    /// A token with these claims. `header`: further fields of its header, with a comma before them.
    fn sign(&self, header: &str, claims: &str) -> String {
        let header = format!(r#"{{"alg":"ES256","typ":"JWT"{header}}}"#);
        let message = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).expect("a key can sign");
        format!("{message}.{}", encode(signature.as_ref()))
    }
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
