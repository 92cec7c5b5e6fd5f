//! Issuers that are gone, slow, rotate their keys or answer nonsense: how often they are asked, and which keys count.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::json;

use super::*;

/// A network of scripted answers, by URL. Other URLs are unreachable.
#[derive(Default)]
struct Network {
    answers: Mutex<Vec<(String, String)>>,
    asked: AtomicUsize,
    pause: Mutex<Duration>,
}

impl Network {
    fn publish(&self, url: &str, answer: impl Into<String>) {
        let mut answers = self.answers.lock().expect("no test panics here");
        answers.retain(|(known, _)| known != url);
        answers.push((url.to_owned(), answer.into()));
    }

    fn vanish(&self) {
        self.answers.lock().expect("no test panics here").clear();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl JwksFetcher for Network {
    fn get(&self, url: Url) -> BoxFuture<'static, Result<Bytes, String>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answers = self.answers.lock().expect("no test panics here");
        let answer = answers.iter().find(|(known, _)| known == url.as_str()).map(|(_, answer)| answer.clone());
        let pause = *self.pause.lock().expect("no test panics here");
        async move {
            tokio::time::sleep(pause).await;
            answer.map(Bytes::from).ok_or_else(|| "connection refused".to_owned())
        }
        .boxed()
    }
}

const URL: &str = "https://id.example.com/jwks";

/// A set of Ed25519 keys with these ids. Equal ids are equal keys.
fn keys(kids: &[&str]) -> String {
    let key = |kid: &&str| json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": "A".repeat(43) });
    json!({ "keys": kids.iter().map(key).collect::<Vec<_>>() }).to_string()
}

fn network() -> (Arc<Network>, Arc<Jwks>) {
    let network = Arc::new(Network::default());
    let url = Url::parse(URL).expect("a URL");
    (Arc::clone(&network), Jwks::new("https://id.example.com", JwksSource::Url(url), network))
}

async fn find(jwks: &Arc<Jwks>, kid: &str, now: Instant) -> Result<Arc<JwksKey>, Reason> {
    jwks.key(Some(kid), Algorithm::EdDSA, now).await
}

/// Waits for an attempt that no request waits for.
async fn settled(jwks: &Jwks) {
    drop(jwks.attempt.lock().await);
}

fn after(now: Instant, seconds: u64) -> Instant {
    now + Duration::from_secs(seconds)
}

#[tokio::test]
async fn an_unknown_key_is_looked_for_at_most_once_in_thirty_seconds() {
    let (network, jwks) = network();
    network.publish(URL, keys(&["a"]));
    let now = Instant::now();
    assert!(find(&jwks, "a", now).await.is_ok());
    assert_eq!(network.asked(), 1);

    for _ in 0..100 {
        assert_eq!(find(&jwks, "b", after(now, 29)).await.err(), Some(Reason::Unknown));
    }
    assert_eq!(network.asked(), 1);

    network.publish(URL, keys(&["a", "b"]));
    assert!(find(&jwks, "b", after(now, 30)).await.is_ok(), "rotated keys are found");
    assert_eq!(network.asked(), 2);
}

#[tokio::test]
async fn all_who_wait_share_one_attempt() {
    let (network, jwks) = network();
    network.publish(URL, keys(&["a"]));
    *network.pause.lock().expect("no test panics here") = Duration::from_millis(50);

    let now = Instant::now();
    let waiting = (0..200).map(|_| find(&jwks, "a", now));
    let found = futures_util::future::join_all(waiting).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(network.asked(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_does_not_end_the_attempt() {
    let (network, jwks) = network();
    network.publish(URL, keys(&["a"]));
    *network.pause.lock().expect("no test panics here") = Duration::from_millis(30);

    let now = Instant::now();
    let left = tokio::time::timeout(Duration::from_millis(5), find(&jwks, "a", now)).await;
    assert!(left.is_err(), "the client left before the keys were there");
    assert!(find(&jwks, "a", now).await.is_ok());
    assert_eq!(network.asked(), 1);
}

#[tokio::test]
async fn without_any_keys_every_token_is_refused() {
    let (network, jwks) = network();
    let now = Instant::now();
    for text in ["", "{}", "[]", "<html>", r#"{"keys":7}"#] {
        let now = after(now, 30 * u64::try_from(network.asked()).expect("a small number"));
        network.publish(URL, text);
        assert_eq!(find(&jwks, "a", now).await.err(), Some(Reason::Unavailable), "{text}");
        assert_eq!(find(&jwks, "a", now).await.err(), Some(Reason::Unavailable), "{text}");
    }
    assert_eq!(network.asked(), 5, "each was asked for once");

    network.publish(URL, r#"{"keys":[]}"#);
    assert_eq!(find(&jwks, "a", after(now, 600)).await.err(), Some(Reason::Unknown), "an issuer without keys");
}

#[tokio::test]
async fn keys_survive_an_outage_and_end_with_their_withdrawal() {
    let (network, jwks) = network();
    network.publish(URL, keys(&["a"]));
    let now = Instant::now();
    let key = find(&jwks, "a", now).await.expect("a key");

    network.vanish();
    for minutes in 10..20 {
        assert!(find(&jwks, "a", after(now, 60 * minutes)).await.is_ok());
        settled(&jwks).await;
    }
    assert_eq!(network.asked(), 11);
    assert!(key.is_published());

    network.publish(URL, keys(&["a", "b"]));
    assert!(find(&jwks, "b", after(now, 1300)).await.is_ok());
    assert!(key.is_published(), "the same key is still the same");

    network.publish(URL, keys(&["b"]));
    jwks.refresh(after(now, 1310));
    settled(&jwks).await;
    assert!(key.is_published(), "keys are fresh for ten minutes");
    jwks.refresh(after(now, 1900));
    settled(&jwks).await;
    assert!(!key.is_published());
    assert_eq!(find(&jwks, "a", after(now, 1910)).await.err(), Some(Reason::Unknown));
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_not_waited_for() {
    let network = Arc::new(Network::default());
    network.publish(URL, keys(&["a"]));
    *network.pause.lock().expect("no test panics here") = Duration::from_secs(3600);

    let source = JwksSource::Url(Url::parse(URL).expect("a URL"));
    let network: Arc<dyn JwksFetcher> = network;
    let jwks = Jwks::with_timeout("https://id.example.com", source, network, Duration::from_millis(50));
    let began = Instant::now();
    assert_eq!(find(&Arc::new(jwks), "a", began).await.err(), Some(Reason::Unavailable));
    assert!((50..2000).contains(&began.elapsed().as_millis()));
}

#[tokio::test]
async fn discovery_finds_the_keys_of_this_issuer_only() {
    let issuer = "https://id.example.com/tenant";
    let document = |issuer: &str, jwks: &str| json!({ "issuer": issuer, "jwks_uri": jwks }).to_string();
    for (what, document, found) in [
        ("its own", document(issuer, URL), true),
        ("another issuer", document("https://evil.example.com", URL), false),
        ("a slash at the end", document("https://id.example.com/tenant/", URL), false),
        ("keys without TLS", document(issuer, "http://id.example.com/jwks"), false),
        ("keys of a file", document(issuer, "file:///etc/passwd"), false),
        ("no keys", json!({ "issuer": issuer }).to_string(), false),
        ("no document", String::new(), false),
    ] {
        let network = Arc::new(Network::default());
        network.publish("https://id.example.com/tenant/.well-known/openid-configuration", document);
        for url in [URL, "http://id.example.com/jwks", "file:///etc/passwd"] {
            network.publish(url, keys(&["a"]));
        }
        let jwks = Jwks::new(issuer, JwksSource::Discovery, network);
        assert_eq!(find(&jwks, "a", Instant::now()).await.is_ok(), found, "{what}");
    }
}

#[test]
fn discovery_uses_the_issuer_url_over_tls() {
    for (issuer, url) in [
        ("https://id.example.com", "https://id.example.com/.well-known/openid-configuration"),
        ("https://id.example.com/", "https://id.example.com/.well-known/openid-configuration"),
        ("https://id.example.com/a", "https://id.example.com/a/.well-known/openid-configuration"),
        ("http://127.0.0.1:9/", "http://127.0.0.1:9/.well-known/openid-configuration"),
        ("http://localhost:9", "http://localhost:9/.well-known/openid-configuration"),
        ("http://[::1]", "http://[::1]/.well-known/openid-configuration"),
    ] {
        assert_eq!(discovery_url(issuer).expect("a URL").as_str(), url);
    }
    for issuer in ["http://id.example.com", "http://localhost.example.com", "ftp://127.0.0.1", "id", ""] {
        assert!(discovery_url(issuer).is_err(), "{issuer}");
    }
}

#[tokio::test]
async fn keys_of_a_file_are_read_again() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(keys(&["a"]).as_bytes()).expect("a disk");
    let source = JwksSource::File(file.path().to_owned());
    let jwks = Jwks::new("https://id.example.com", source, Arc::new(Network::default()));
    let now = Instant::now();
    assert!(find(&jwks, "a", now).await.is_ok());

    std::fs::write(file.path(), keys(&["b"])).expect("a disk");
    assert!(find(&jwks, "b", after(now, 30)).await.is_ok());

    std::fs::write(file.path(), " ".repeat(1024 * 1024 + 1)).expect("a disk");
    jwks.refresh(after(now, 700));
    settled(&jwks).await;
    assert!(find(&jwks, "b", after(now, 701)).await.is_ok(), "a file that is too long is not read");
}
