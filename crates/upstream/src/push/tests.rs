//! Names that cannot be resolved, that resolve to other addresses later, and that are written in other forms:
//! connections go to checked addresses only.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::ready;
use interlingua_core::public_address::AddressException;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A resolver that gives these answers, one after the other, and counts the lookups.
fn resolving(answers: Vec<io::Result<Vec<SocketAddr>>>) -> (HttpWebhookClient, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, answers) = (Arc::clone(&asked), Mutex::new(answers.into_iter()));
    let lookup = move |_: String, _: u16| {
        count.fetch_add(1, Ordering::Relaxed);
        let answer = answers.lock().expect("no test panics while answering").next();
        ready(answer.unwrap_or_else(|| Err(io::Error::other("asked too often")))).boxed()
    };
    (HttpWebhookClient { lookup: Arc::new(lookup), ..HttpWebhookClient::new(Vec::new()) }, asked)
}

fn unknown() -> io::Result<Vec<SocketAddr>> {
    Err(io::Error::other("no such name"))
}

fn policy(allow: &[&str]) -> Policy {
    let allow = allow.iter().map(|text| text.parse::<AddressException>().expect("an exception")).collect();
    Policy { allow_http: true, ports: Vec::new(), allow }
}

fn delivery() -> PushRequest {
    PushRequest { headers: vec![("x-a2a-notification-token", "t".to_owned())], body: b"{}".to_vec() }
}

/// A receiver that confirms every request and returns their `Host` headers.
async fn receiver() -> (SocketAddr, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let received = tokio::spawn(async move {
        let mut hosts = Vec::new();
        let quiet_time = Duration::from_millis(500);
        while let Ok(Ok((mut stream, _))) = tokio::time::timeout(quiet_time, listener.accept()).await {
            let mut head = Vec::new();
            while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.expect("a request") == 0 {
                    break;
                }
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.expect("a client");
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("").to_owned();
            hosts.push(host);
        }
        hosts
    });
    (address, received)
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_accepted_unless_it_is_local() {
    for (url, expected) in [
        ("https://hooks.invalid.example/hook", Ok(())),
        ("http://hooks.invalid.example:8080/", Ok(())),
        ("http://x.internal/", Err(RefusedAddress::Host)),
        ("http://localhost/", Err(RefusedAddress::Host)),
        ("http://app.localhost/", Err(RefusedAddress::Host)),
        ("https://LOCALHOST./", Err(RefusedAddress::Host)),
        ("https://printer.local/", Err(RefusedAddress::Host)),
        ("https://hooks/", Err(RefusedAddress::Host)),
        // Operators may allow local names.
        ("http://hooks.internal/", Ok(())),
    ] {
        let (post, asked) = resolving(vec![unknown()]);
        assert_eq!(post.check_url(url, &policy(&["hooks.internal"])).await, expected, "{url}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
    // A name that can be resolved is checked by its addresses.
    let known = |address: &str| Ok(vec![address.parse().expect("an address")]);
    for (address, expected) in
        [("8.8.8.8:443", Ok(())), ("10.0.0.1:443", Err(RefusedAddress::Host)), ("[::1]:443", Err(RefusedAddress::Host))]
    {
        let (post, _) = resolving(vec![known(address)]);
        assert_eq!(post.check_url("https://hooks.invalid.example/", &policy(&[])).await, expected, "{address}");
    }
    let (post, _) = resolving(vec![Ok(Vec::new())]);
    assert_eq!(post.check_url("https://hooks.invalid.example/", &policy(&[])).await, Err(RefusedAddress::Host));
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_at_a_delivery_is_retried() {
    let (post, _) = resolving(vec![unknown()]);
    let failed = post.post("https://hooks.invalid.example/", &policy(&[]), delivery()).await;
    assert!(failed.is_err_and(|failed| failed.retryable));
}

#[tokio::test]
async fn a_name_that_resolves_elsewhere_after_the_check_is_not_followed() {
    let (address, received) = receiver().await;
    let port = address.port();
    let inside: SocketAddr = format!("169.254.169.254:{port}").parse().expect("an address");
    let policy = policy(&["127.0.0.1"]);
    // Public when the config is created and for the first delivery, internal from then on.
    let answers = vec![Ok(vec![address]), Ok(vec![address]), Ok(vec![inside]), Ok(vec![address, inside])];
    let (post, asked) = resolving(answers);
    let url = format!("http://rebind.example:{port}/hook");
    assert_eq!(post.check_url(&url, &policy).await, Ok(()));
    assert!(post.post(&url, &policy, delivery()).await.is_ok());
    assert_eq!(asked.load(Ordering::Relaxed), 2, "the connection resolves nothing");
    for _ in 0..2 {
        let failed = post.post(&url, &policy, delivery()).await;
        assert_eq!(failed.map_err(|failed| failed.reason), Err(RefusedAddress::Host.to_string()));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    assert_eq!(received.await.expect("a receiver"), [format!("rebind.example:{port}")]);
}

#[tokio::test]
async fn every_form_of_a_name_connects_to_the_checked_addresses() {
    let (address, received) = receiver().await;
    let port = address.port();
    for host in ["hooks.invalid.example.", "HOOKS.invalid.EXAMPLE", "localhost."] {
        // If it were resolved again, by the system, nothing would arrive.
        let (post, asked) = resolving(vec![Ok(vec![address])]);
        let sent = post.post(&format!("http://{host}:{port}/"), &policy(&["127.0.0.1"]), delivery()).await;
        assert!(sent.is_ok(), "{host}: {sent:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
    // An address is one in every notation and is not resolved.
    for host in ["127.0.0.1", "127.1", "0x7f000001", "2130706433"] {
        let (post, asked) = resolving(Vec::new());
        let sent = post.post(&format!("http://{host}:{port}/"), &policy(&["127.0.0.1"]), delivery()).await;
        assert!(sent.is_ok(), "{host}: {sent:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
    assert_eq!(received.await.expect("a receiver").len(), 7);
}

#[tokio::test]
async fn only_unambiguous_urls_are_connected() {
    let (post, asked) = resolving(Vec::new());
    for url in ["https://xn--a.example/", "https://hooks.example:99999/", "https://ho st.example/"] {
        assert!(post.check_url(url, &policy(&[])).await.is_err(), "{url}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_gateway_that_listens_everywhere_knows_all_its_addresses() {
    let listens: SocketAddr = "0.0.0.0:8080".parse().expect("an address");
    let own = HttpWebhookClient::new(vec![listens]).own();
    for interface in if_addrs::get_if_addrs().expect("the machine has addresses") {
        assert!(own.contains(SocketAddr::new(interface.ip(), 8080)), "{interface:?}");
        assert!(!own.contains(SocketAddr::new(interface.ip(), 8081)));
    }
    assert!(!own.contains("8.8.8.8:8080".parse().expect("an address")));
}

/// A receiver that keeps its connections open and counts connections and requests.
async fn keeping() -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opened, received) = (Arc::clone(&connections), Arc::clone(&requests));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            opened.fetch_add(1, Ordering::Relaxed);
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                let mut read = Vec::new();
                while stream.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
                    if read.ends_with(b"{}") {
                        read.clear();
                        received.fetch_add(1, Ordering::Relaxed);
                        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("a client");
                    }
                }
            });
        }
    });
    (address, connections, requests)
}

#[tokio::test]
async fn pushes_to_one_place_share_a_connection_as_long_as_it_resolves_to_the_same() {
    let (address, connections, requests) = keeping().await;
    let port = address.port();
    let inside: SocketAddr = format!("169.254.169.254:{port}").parse().expect("an address");
    let answers = vec![Ok(vec![address]), Ok(vec![address]), Ok(vec![address]), Ok(vec![inside])];
    let (post, _) = resolving(answers);
    let url = format!("http://hooks.example:{port}/hook");
    let policy = policy(&["127.0.0.1"]);
    for _ in 0..3 {
        post.post(&url, &policy, delivery()).await.expect("it arrives");
    }
    let counted = || (connections.load(Ordering::Relaxed), requests.load(Ordering::Relaxed));
    assert_eq!(counted(), (1, 3), "one connection, three requests");
    // An open connection is not used once the name resolves to a refused address.
    let failed = post.post(&url, &policy, delivery()).await;
    assert_eq!(failed.map_err(|failed| failed.reason), Err(RefusedAddress::Host.to_string()));
    assert_eq!(counted(), (1, 3));
}
