//! Callers with certificates of their own connection. Not here: the handshake (`tls.rs`), and names that a trusted
//! proxy passes on (`tokens.rs`).

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, user_turn};
use crate::support::http::request;
use crate::support::tls::{Authority, VERSIONS, client, exchange, get};

const RUNS: &str = "/agents/demo/runs";

/// The server's certificate, the authority of clients, and the configuration.
fn set_up(folder: &Path, kind: &str) -> (Authority, Authority, String) {
    let (servers, clients) = (Authority::new(), Authority::new());
    servers.server().write(folder);
    std::fs::write(folder.join("clients.pem"), clients.pem()).expect("a file");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n\
         tls = {{ cert = \"cert.pem\", key = \"key.pem\", client_ca = \"clients.pem\" }}\n\
         [store]\nkind = \"memory\"\n[auth]\ncertificates = {{ caller = \"{kind}\" }}\n\
         [callers.\"spiffe://example.com/guest\"]\nagents = []\n\
         {DEMO}{ROUTE}[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\n"
    );
    (servers, clients, config)
}

async fn status(gateway: &Gateway, client: &Arc<ClientConfig>, path: &str) -> String {
    let answer = get(gateway.address, client, path).await.expect("an answer");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_name_in_a_certificate_is_the_caller() {
    let folder = tempfile::tempdir().expect("a folder");
    let (servers, clients, config) = set_up(folder.path(), "san_uri");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let identity = |name: &str| {
        let identity = clients.client(&format!("spiffe://example.com/{name}"), "same.example.com");
        client(&servers, Some(&identity), &VERSIONS)
    };
    let (ann, bob, guest) = (identity("ann"), identity("bob"), identity("guest"));
    assert_eq!(status(&gateway, &ann, RUNS).await, "200");
    assert_eq!(status(&gateway, &guest, RUNS).await, "403");
    assert_eq!(status(&gateway, &client(&servers, None, &VERSIONS), RUNS).await, "401", "no certificate");

    let headers = [JSON, &[("connection", "close")]].concat();
    let turn = request("POST", "/agents/demo/process", &headers, user_turn("hello").to_string().as_bytes());
    let answer = exchange(gateway.address, &ann, &turn).await.expect("a stream");
    assert!(answer.contains("\"status\":\"completed\""), "{answer}");
    let own = get(gateway.address, &ann, RUNS).await.expect("a list");
    let others = get(gateway.address, &bob, RUNS).await.expect("a list");
    assert!(own.contains("completed") && !others.contains("completed"), "{own}\n{others}");

    let card = get(gateway.address, &bob, "/a2a/demo/.well-known/agent-card.json").await.expect("a card");
    assert!(card.contains("\"mtls\"") && card.contains("mtlsSecurityScheme"), "{card}");
}

#[tokio::test]
async fn other_kinds_of_names_do_not_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let (servers, clients, config) = set_up(folder.path(), "san_dns");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let guest = clients.client("spiffe://example.com/guest", "guest.example.com");
    assert_eq!(status(&gateway, &client(&servers, Some(&guest), &VERSIONS), RUNS).await, "200", "by its DNS name");

    // A header counts only if the configuration names one.
    let forged = request("GET", RUNS, &[("x-client-san", "ann.example.com"), ("connection", "close")], b"");
    let answer = exchange(gateway.address, &client(&servers, None, &VERSIONS), &forged).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}
