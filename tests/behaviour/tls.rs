//! TLS of the listener: versions, certificates that are replaced while it serves, certificates of clients, and clients
//! that do not shake hands as they should.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use interlingua::tls::{ClientCertificate, SharedTls, TlsFiles, TlsReload};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, user_turn};
use crate::support::http::{Exchange, request, with_timeout};
use crate::support::poll_until;
use crate::support::process::{Process, binary};
use crate::support::tls::{Authority, VERSIONS, client, connect, exchange, get};

/// A folder with the certificate of a server and the authority that signed it.
fn folder() -> (TempDir, Authority) {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
    authority.server().write(folder.path());
    (folder, authority)
}

/// A configuration: further files of TLS, further keys of the server, further routes.
fn config(files: &str, server: &str, routes: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n\
         tls = {{ cert = \"cert.pem\", key = \"key.pem\"{files} }}\n{server}\n{DEMO}{ROUTE}{routes}"
    )
}

async fn start(folder: &Path, files: &str, server: &str) -> Gateway {
    Gateway::in_folder(&config(files, server, ""), folder.to_owned()).await
}

#[tokio::test]
async fn both_versions_are_served_and_urls_say_https() {
    let (folder, authority) = folder();
    let card = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
    let gateway = Gateway::in_folder(&config("", "", card), folder.path().to_owned()).await;
    for version in VERSIONS {
        let client = client(&authority, None, &[version]);
        let stream = connect(gateway.address, &client).await.expect("a handshake");
        let (_, session) = stream.get_ref();
        assert_eq!(session.protocol_version(), Some(version.version));
        assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));

        let card = get(gateway.address, &client, "/a2a/demo/.well-known/agent-card.json").await.expect("a card");
        let url = format!("https://localhost:{}/a2a/demo", gateway.address.port());
        assert!(card.starts_with("HTTP/1.1 200 ") && card.contains(&url), "{card}");
        let body = user_turn("hello").to_string();
        let headers = [JSON, &[("connection", "close")]].concat();
        let turn = request("POST", "/agents/demo/process", &headers, body.as_bytes());
        let events = exchange(gateway.address, &client, &turn).await.expect("a stream");
        assert!(events.contains("\"status\":\"completed\"") && events.ends_with("0\r\n\r\n"), "{events}");
    }
}

#[tokio::test]
async fn older_versions_are_refused() {
    let (folder, _) = folder();
    let gateway = start(folder.path(), "", "").await;

    // A ClientHello of TLS 1.1 (RFC 4346, section 7.4.1.2), with the extension signature_algorithms.
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x13, 0x00, 0x2f, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let mut record = vec![22, 3, 1, 0, u8::try_from(hello.len() + 4).expect("short")];
    record.extend([1, 0, 0, u8::try_from(hello.len()).expect("short")]);
    record.extend(hello);
    let answer = Exchange::send(gateway.address, &record).await.bytes().await;
    // A fatal alert: protocol_version.
    assert!(answer.starts_with(&[21]) && answer.ends_with(&[2, 70]), "{answer:?}");
}

#[tokio::test]
async fn a_replaced_certificate_applies_to_new_connections() {
    let (folder, authority) = folder();
    let gateway = start(folder.path(), "", "").await;
    let client = client(&authority, None, &VERSIONS);
    let mut open = connect(gateway.address, &client).await.expect("a handshake");
    let body = user_turn("long 400 20").to_string();
    let headers = [JSON, &[("connection", "close")]].concat();
    open.write_all(&request("POST", "/agents/demo/process", &headers, body.as_bytes())).await.expect("a request");

    let new = authority.server();
    new.write(folder.path());
    let replaced = Instant::now();
    poll_until("the new certificate", async || {
        let stream = connect(gateway.address, &client).await.expect("a handshake");
        (stream.get_ref().1.peer_certificates() == Some(&new.chain())).then_some(())
    })
    .await;
    assert!(replaced.elapsed() < Duration::from_secs(5), "{:?}", replaced.elapsed());

    let mut answer = String::new();
    with_timeout("the stream to end", open.read_to_string(&mut answer)).await.expect("a stream");
    assert!(answer.contains("\"status\":\"completed\"") && answer.ends_with("0\r\n\r\n"));
}

#[test]
fn mismatched_files_keep_the_active_certificate() {
    let (folder, authority) = folder();
    let path = folder.path();
    std::fs::write(path.join("ca.pem"), authority.pem()).expect("a file");
    let files =
        TlsFiles { cert: path.join("cert.pem"), key: path.join("key.pem"), client_ca: Some(path.join("ca.pem")) };
    let tls = SharedTls::open(files).expect("good files");
    assert_eq!(tls.reload(), TlsReload::Unchanged);

    // Half of a pair, a file that is gone, and one without a certificate.
    let other = authority.server();
    std::fs::write(path.join("key.pem"), &other.key).expect("a file");
    let TlsReload::Kept(error) = tls.reload() else { panic!("a wrong key was used") };
    assert!(error.to_string().contains("does not belong to the first certificate"), "{error}");
    std::fs::remove_file(path.join("key.pem")).expect("it is there");
    let TlsReload::Kept(error) = tls.reload() else { panic!("no key was used") };
    assert!(error.to_string().contains("cannot be read"), "{error}");
    other.write(path);
    std::fs::write(path.join("ca.pem"), "nothing").expect("a file");
    let TlsReload::Kept(error) = tls.reload() else { panic!("no authority was used") };
    assert!(error.to_string().contains("ca.pem\" holds no certificate"), "{error}");
    assert_eq!(tls.load().generation, 0);

    std::fs::write(path.join("ca.pem"), authority.pem()).expect("a file");
    assert_eq!(tls.reload(), TlsReload::Replaced);
    assert_eq!((tls.load().generation, tls.reload()), (1, TlsReload::Unchanged));
}

#[test]
fn a_certificate_holds_as_long_as_its_authority() {
    let (folder, authority) = folder();
    let path = folder.path();
    std::fs::write(path.join("ca.pem"), authority.pem()).expect("a file");
    let files =
        TlsFiles { cert: path.join("cert.pem"), key: path.join("key.pem"), client_ca: Some(path.join("ca.pem")) };
    let tls = Arc::new(SharedTls::open(files).expect("good files"));
    let shown = authority.client("spiffe://example.com/team-a", "team-a.example.com");
    let certificate = |chain| ClientCertificate::new(chain, Arc::clone(&tls), &tls.load());
    let known = certificate(shown.chain()).expect("a certificate");
    assert_eq!(known.uris(), ["spiffe://example.com/team-a"]);
    assert_eq!(known.dns_names(), ["team-a.example.com"]);
    assert!(known.is_valid() && certificate(Vec::new()).is_none());

    // Another server certificate changes nothing, another authority does.
    let late = certificate(authority.expired_client().chain()).expect("a certificate");
    authority.server().write(path);
    assert_eq!(tls.reload(), TlsReload::Replaced);
    assert!(known.is_valid() && !late.is_valid());
    std::fs::write(path.join("ca.pem"), Authority::new().pem()).expect("a file");
    assert_eq!(tls.reload(), TlsReload::Replaced);
    assert!(!known.is_valid());
}

#[tokio::test]
async fn certificates_of_clients_are_verified_until_their_authority_is_removed() {
    let (folder, authority) = folder();
    let clients = Authority::new();
    std::fs::write(folder.path().join("clients.pem"), clients.pem()).expect("a file");
    let gateway = start(folder.path(), ", client_ca = \"clients.pem\"", "").await;
    let asks = async |shown: Option<&_>, version| {
        let client = client(&authority, shown, &[version]);
        get(gateway.address, &client, "/healthz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
    };

    let good = clients.client("spiffe://example.com/a", "a.example.com");
    let foreign = Authority::new().client("spiffe://example.com/a", "a.example.com");
    let expired = clients.expired_client();
    for version in VERSIONS {
        assert!(asks(None, version).await, "a certificate is not required");
        assert!(asks(Some(&good), version).await);
        assert!(!asks(Some(&foreign), version).await && !asks(Some(&expired), version).await);
    }

    // The same client as before, which could resume its session.
    let returning = client(&authority, Some(&good), &VERSIONS);
    assert!(get(gateway.address, &returning, "/healthz").await.is_ok());
    std::fs::write(folder.path().join("clients.pem"), Authority::new().pem()).expect("a file");
    poll_until("the authority to be gone", async || {
        get(gateway.address, &returning, "/healthz").await.is_err().then_some(())
    })
    .await;
    assert!(asks(None, VERSIONS[1]).await);
}

#[tokio::test]
async fn who_does_not_shake_hands_is_closed() {
    let (folder, authority) = folder();
    let gateway = start(folder.path(), "", "timeouts = { head = \"400ms\" }").await;

    // Plain HTTP gets no HTTP.
    let answer = Exchange::send(gateway.address, &request("GET", "/healthz", &[], b"")).await.bytes().await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");

    // Nothing at all, and a handshake that comes byte by byte.
    for part in [&[][..], &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]] {
        let started = Instant::now();
        let mut stream = TcpStream::connect(gateway.address).await.expect("a connection");
        for byte in part.iter().chain(&[0; 200]).take(part.len() * 20) {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let _ = with_timeout("the end", stream.read_to_end(&mut Vec::new())).await;
        let elapsed = started.elapsed();
        assert!((350..1400).contains(&elapsed.as_millis()), "{elapsed:?}");
    }

    // Once it is done, the head of a request has its own time, and its 408 is encrypted too.
    let client = client(&authority, None, &VERSIONS);
    let half = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-";
    let mut stream = connect(gateway.address, &client).await.expect("a handshake");
    stream.write_all(half).await.expect("half a head");
    let mut answer = Vec::new();
    let _ = with_timeout("the end", stream.read_to_end(&mut answer)).await;
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
}

#[tokio::test]
async fn a_stalled_client_is_disconnected_and_the_limit_refuses_others() {
    let (folder, authority) = folder();
    let server = "timeouts = { write = \"400ms\" }\nlimits = { connections = 1 }";
    let gateway = start(folder.path(), "", server).await;
    let client = client(&authority, None, &VERSIONS);

    let body = user_turn("long 60000 0").to_string();
    let mut stalled = connect(gateway.address, &client).await.expect("a handshake");
    stalled.write_all(&request("POST", "/agents/demo/process", JSON, body.as_bytes())).await.expect("a request");
    let rejected = Exchange::send(gateway.address, b"").await.bytes().await;
    assert!(rejected.is_empty(), "{rejected:?}");

    // Its place is free once it is gone.
    let started = Instant::now();
    poll_until("a place", async || get(gateway.address, &client, "/healthz").await.ok()).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let mut taken = Vec::new();
    let _ = with_timeout("the end", stalled.read_to_end(&mut taken)).await;
    assert!(!taken.ends_with(b"0\r\n\r\n"), "{} bytes", taken.len());
}

#[tokio::test]
async fn a_websocket_works_over_tls() {
    let (folder, authority) = folder();
    let route = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";
    let gateway = Gateway::in_folder(&config("", "", route), folder.path().to_owned()).await;
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut stream = connect(gateway.address, &client(&authority, None, &VERSIONS)).await.expect("a handshake");
    stream.write_all(&request("GET", "/v1/responses", &upgrade, b"")).await.expect("a request");

    // A masked ping is answered with a pong, after the head of the answer.
    stream.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await.expect("the socket is open");
    let mut answer = Vec::new();
    while !answer.ends_with(&[0x8a, 0]) {
        let read = with_timeout("a pong", stream.read_buf(&mut answer)).await.expect("an answer");
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
}

#[tokio::test]
async fn the_binary_says_https_keeps_the_old_pair_and_repeats_no_key() {
    let (folder, authority) = folder();
    let path = folder.path();
    std::fs::write(path.join("gateway.toml"), config("", "", "")).expect("a file");
    let log = std::fs::File::create(path.join("log")).expect("a file");
    let mut command = binary(path);
    command.args(["--log", "trace", "--log-format", "json"]).stderr(log);
    let process = Process::spawn(command);
    let url = format!("https://{}", process.address);
    assert!(process.startup_output.contains(&url) && !process.startup_output.contains("http://"));

    let health = binary(path).args(["health", &url]).stdout(Stdio::piped()).output().expect("the binary runs");
    assert!(health.status.success(), "{}", String::from_utf8_lossy(&health.stderr));
    assert_eq!(health.stdout, b"ready\n");

    // A key of another certificate: the old pair stays in use, and one log line says so.
    let old = std::fs::read_to_string(path.join("key.pem")).expect("a file");
    let other = authority.server();
    std::fs::write(path.join("key.pem"), &other.key).expect("a file");
    let logged = || std::fs::read_to_string(path.join("log")).expect("a file");
    poll_until("the warning", async || logged().contains("the old TLS certificate is kept").then_some(())).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(logged().matches("the old TLS certificate is kept").count(), 1);
    let client = client(&authority, None, &VERSIONS);
    assert!(get(process.address, &client, "/healthz").await.expect("an answer").starts_with("HTTP/1.1 200 "));

    // `check` refuses the pair. Nothing repeats a line of a key.
    let check = binary(path).arg("check").stderr(Stdio::piped()).output().expect("the binary runs");
    assert_eq!(check.status.code(), Some(2));
    let printed = [check.stdout, check.stderr].concat();
    let shown = logged() + &process.startup_output + &String::from_utf8_lossy(&printed);
    assert!(shown.contains("does not belong to the first certificate of"), "{shown}");
    for line in old.lines().chain(other.key.lines()).filter(|line| !line.starts_with("-----")) {
        assert!(!shown.contains(line), "{line}");
    }

    // The certificate of that key completes the pair.
    std::fs::write(path.join("cert.pem"), &other.cert).expect("a file");
    poll_until("the pair", async || logged().contains("the TLS files were reloaded").then_some(())).await;
}

#[tokio::test]
async fn a_reload_replaces_the_certificate_and_failed_handshakes_are_counted() {
    let (folder, authority) = folder();
    let path = folder.path();
    let server = "[admin]\nlisten = \"127.0.0.1:0\"\nconsole = false";
    std::fs::write(path.join("gateway.toml"), config("", server, "")).expect("a file");
    let process = Process::start_logging(path);
    let client = client(&authority, None, &VERSIONS);
    let shown = async || {
        let stream = connect(process.address, &client).await.expect("a handshake");
        stream.get_ref().1.peer_certificates().expect("a certificate").to_vec()
    };

    // The files are looked at every two seconds: a reload does not wait for that.
    for _ in 0..3 {
        let new = authority.server();
        new.write(path);
        let reloaded = process.operate("POST", "/api/reload", &[], b"").await;
        assert_eq!(reloaded.status, 200, "{}", reloaded.text());
        assert_eq!(shown().await, new.chain());
    }
    let reloads = || {
        let log = std::fs::read_to_string(path.join("log")).expect("a file");
        log.matches("configuration reloaded").count()
    };
    // Lines are written up to 10 ms later.
    poll_until("three lines", async || (reloads() >= 3).then_some(())).await;
    let before = reloads();
    let new = authority.server();
    new.write(path);
    process.hang_up();
    poll_until("the reload", async || (reloads() > before).then_some(())).await;
    assert_eq!(shown().await, new.chain());

    let metrics = process.operate("GET", "/metrics", &[], b"").await;
    assert!(metrics.text().contains("interlingua_tls_handshakes_failed_total 0\n"), "{}", metrics.text());
    Exchange::send(process.address, b"GET / HTTP/1.1\r\n\r\n").await.bytes().await;
    let stranger = crate::support::tls::client(&Authority::new(), None, &VERSIONS);
    assert!(connect(process.address, &stranger).await.is_err());
    poll_until("two failures", async || {
        let metrics = process.operate("GET", "/metrics", &[], b"").await;
        metrics.text().contains("interlingua_tls_handshakes_failed_total 2\n").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_thousand_replacements_under_load_fail_no_request() {
    let (folder, authority) = folder();
    let gateway = start(folder.path(), "", "").await;
    let (address, client) = (gateway.address, client(&authority, None, &VERSIONS));
    let over = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let over = Arc::clone(&over);
        let client = Arc::clone(&client);
        async move {
            let mut served = 0;
            while !over.load(Ordering::Relaxed) {
                let answer = get(address, &client, "/healthz").await.expect("an answer");
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                served += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            served
        }
    });

    // The pair is written in two steps; every tenth key belongs to another certificate.
    let identities: Vec<_> = (0..10).map(|_| authority.server()).collect();
    for number in 0..1000 {
        let (cert, key) = (number % 10, if number % 10 == 9 { 0 } else { number % 10 });
        std::fs::write(folder.path().join("cert.pem"), &identities[cert].cert).expect("a file");
        std::fs::write(folder.path().join("key.pem"), &identities[key].key).expect("a file");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    identities[3].write(folder.path());
    poll_until("the last pair", async || {
        let stream = connect(address, &client).await.expect("a handshake");
        (stream.get_ref().1.peer_certificates() == Some(&identities[3].chain())).then_some(())
    })
    .await;
    over.store(true, Ordering::Relaxed);
    let served = load.await.expect("no request fails");
    assert!(served > 100, "{served} requests");
}
