//! A2A cards based on the card of the agent (`card_from`): the requests to its server, and the clients' view if that
//! server is wrong, slow or gone or sends too much. Also the URL that any card contains. Not here: the fields taken
//! from an upstream card (the adapter's tests) and its lifetime in the cache (`crates/upstream/src/card`).

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::agent::text_reply;
use crate::support::gateway::{DEMO, Gateway, agent};
use crate::support::poll_until;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream, unused_address};

const ROUTE: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\noptions = { card_from = \"upstream\" }\n";
const CARD: &str = "/.well-known/agent-card.json";
const OLD: &str = "/.well-known/agent.json";

async fn before(url: &str) -> Gateway {
    let agent = agent("friday", url, "description = \"Ours\"", "retries = 0\nheaders = { x-team = \"known\" }");
    Gateway::start(&format!("{agent}{ROUTE}")).await
}

/// An agent whose server replies as `answers` says and with 404 otherwise.
fn publishing(answers: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + 'static) -> Upstream {
    Upstream::with_handler(move |request| {
        answers(request).unwrap_or_else(|| Reply::complete(404, &[("content-type", "text/plain")], "nothing here"))
    })
}

fn shows(card: &Value) -> Reply {
    Reply::complete(200, &[("content-type", "application/json")], card.to_string())
}

async fn card(gateway: &Gateway) -> Value {
    let response = gateway.get(&format!("/a2a/friday{CARD}")).await;
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

fn paths(upstream: &Upstream) -> Vec<String> {
    upstream.requests().into_iter().map(|request| request.path).collect()
}

#[tokio::test]
async fn cards_of_every_version_are_republished_without_the_agents_own_addresses() {
    let inside = "http://agent.svc:9000/";
    let new = json!({
        "name": "New", "description": "d", "version": "9",
        "supportedInterfaces": [{ "url": inside, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "capabilities": { "streaming": false }, "defaultInputModes": ["image/png"], "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "cook", "name": "Cook", "description": "Cooks", "tags": ["food"] }],
        "securitySchemes": { "sso": { "openIdConnectSecurityScheme": { "openIdConnectUrl": inside } } },
        "signatures": [{ "protected": "e30", "signature": "x" }]
    });
    let old = json!({
        "name": "Old", "protocolVersion": "0.3.0", "url": inside, "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{ "url": inside, "transport": "GRPC" }], "security": [{ "sso": [] }],
        "skills": [{ "id": "cook", "name": "Cook", "description": "Cooks", "tags": ["food"], "security": [{ "sso": [] }] }],
        "supportsAuthenticatedExtendedCard": true
    });
    let mut both = new.clone();
    both.as_object_mut().expect("an object").extend(old.as_object().expect("an object").clone());
    for (name, shown) in [("New", new), ("Old", old), ("Old", both)] {
        let upstream = publishing(move |request| (request.path == CARD).then(|| shows(&shown)));
        let gateway = before(&upstream.url("")).await;
        let received = card(&gateway).await;
        assert_eq!((&received["name"], &received["skills"][0]["id"]), (&json!(name), &json!("cook")));

        let text = received.to_string();
        for its in ["agent.svc", "GRPC", "sso", "signatures", "supportsAuthenticatedExtendedCard"] {
            assert!(!text.contains(its), "{its} in {text}");
        }
        let here = "http://localhost/a2a/friday";
        assert_eq!((&received["url"], &received["supportedInterfaces"][0]["url"]), (&json!(here), &json!(here)));
        assert_eq!(received["capabilities"]["streaming"], true);

        let request = upstream.requests();
        assert_eq!((request.len(), request[0].method.as_str()), (1, "GET"));
        for (header, value) in [("a2a-version", "1.0"), ("x-team", "known"), ("accept", "application/json")] {
            assert_eq!(request[0].headers.get(header).map(String::as_str), Some(value));
        }

        // The card is cached.
        assert_eq!(card(&gateway).await, received);
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_card_is_searched_below_the_agent_url_then_at_the_root_then_under_the_old_path() {
    let upstream = publishing(|request| (request.path == OLD).then(|| shows(&json!({ "name": "Rooted" }))));
    let gateway = before(&upstream.url("/process")).await;
    assert_eq!(card(&gateway).await["name"], "Rooted");
    let wanted = [format!("/process{CARD}"), CARD.to_owned(), format!("/process{OLD}"), OLD.to_owned()];
    assert_eq!(paths(&upstream), wanted);

    // The well-known path at the root of the gateway shows the same card.
    assert_eq!(gateway.get(CARD).await.json()["name"], "Rooted");
    assert_eq!(upstream.requests().len(), 4);
}

#[tokio::test]
async fn a_card_whose_url_is_configured_is_read_there_and_nowhere_else() {
    let upstream = publishing(|request| {
        (request.path == "/cards/friday.json").then(|| shows(&json!({ "name": "Named", "description": "d" })))
    });
    let start = async |url: String, options: &str| {
        let agent = agent("friday", &url, "description = \"Ours\"", options).replace("agent-api", "a2a");
        Gateway::start(&format!("{agent}{ROUTE}")).await
    };
    let named = upstream.url("/cards/friday.json");
    let options = format!("options = {{ card_url = \"{named}\" }}");
    assert_eq!(card(&start(upstream.url("/rpc"), &options).await).await["name"], "Named");
    assert_eq!(card(&start(named, "").await).await["name"], "Named");
    assert_eq!(paths(&upstream), ["/cards/friday.json"; 2]);

    let missing = format!("options = {{ card_url = \"{}\" }}", upstream.url("/cards/other.json"));
    assert_eq!(card(&start(upstream.url("/rpc"), &missing).await).await["name"], "friday");
    assert_eq!(paths(&upstream)[2..], ["/cards/other.json"]);
}

#[tokio::test]
async fn without_an_upstream_card_the_configuration_is_used_and_the_fetch_is_not_repeated_soon() {
    let html = || Reply::complete(200, &[("content-type", "text/html")], "<html>{\"name\":\"page\"}</html>");
    let upstreams = [
        publishing(|_| None),
        publishing(move |_| Some(html())),
        publishing(|_| Some(Reply::complete(200, &[("content-type", "application/json")], "{\"name\": \"half"))),
        publishing(|_| Some(Reply::head(200, &[]).chunk("{\"name\": \"cut\"").close())),
        publishing(|_| Some(Reply::complete(503, &[], ""))),
        publishing(|_| Some(Reply::complete(302, &[("location", "/elsewhere")], ""))),
        publishing(|_| Some(shows(&json!({ "name": "huge", "description": "x".repeat(2 << 20) })))),
        publishing(|_| Some(Reply::head(200, &[]).flood(format!("10000\r\n{}\r\n", " ".repeat(65536))))),
        publishing(|_| Some(Reply::nothing())),
    ];

    for (number, upstream) in upstreams.iter().enumerate() {
        let gateway = before(&upstream.url("/process")).await;
        let received = card(&gateway).await;
        assert_eq!(
            (&received["name"], &received["description"]),
            (&json!("friday"), &json!("Ours")),
            "{number}: {received}"
        );

        let request = upstream.requests().len();
        let response = gateway.get(&format!("/a2a/friday{CARD}")).await;
        assert_eq!(
            (response.json(), response.header("cache-control")),
            (received, Some("private, max-age=30")),
            "{number}"
        );
        assert_eq!(upstream.requests().len(), request, "{number} is fetched again too soon");
    }
    let gateway = before(&format!("http://{}/", unused_address())).await;
    assert_eq!(card(&gateway).await["name"], "friday");
}

#[tokio::test]
async fn a_slow_card_does_not_block_clients_and_is_shown_once_it_arrives() {
    let upstream = publishing(|_| {
        let head = Reply::head(200, &[("content-type", "application/json")]);
        Some(head.chunk("{\"name\":").wait("now").chunk("\"Slow\"}").done())
    });
    let gateway = before(&upstream.url("")).await;
    let since = Instant::now();

    // Concurrent requests share one fetch.
    let (one, other) = tokio::join!(card(&gateway), card(&gateway));
    let waited = since.elapsed().as_secs();
    assert!((4..10).contains(&waited), "waited for {waited} s");
    assert_eq!((&one["name"], &other["name"]), (&json!("friday"), &json!("friday")));

    upstream.open("now");
    poll_until("the card to come", async || (card(&gateway).await["name"] == "Slow").then_some(())).await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_card_outlives_its_server_and_may_be_compressed() {
    // gzip of {"name":"Packed"}, stored without compression.
    let plain = br#"{"name":"Packed"}"#;
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1];
    let length = u16::try_from(plain.len()).expect("short");
    packed.extend(length.to_le_bytes());
    packed.extend((!length).to_le_bytes());
    packed.extend(plain);
    packed.extend(crc(plain).to_le_bytes());
    packed.extend(u32::from(length).to_le_bytes());
    let upstream = publishing(move |_| {
        Some(Reply::complete(200, &[("content-type", "application/json"), ("content-encoding", "gzip")], &packed))
    });
    let gateway = before(&upstream.url("")).await;

    assert_eq!(card(&gateway).await["name"], "Packed");
    drop(upstream);
    assert_eq!(card(&gateway).await["name"], "Packed");
}

/// The CRC-32 checksum of gzip.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}

#[tokio::test]
async fn an_etag_is_served_for_an_upstream_card_and_turns_still_work() {
    let upstream = publishing(|request| {
        Some(if request.path == CARD { shows(&json!({ "name": "Friday" })) } else { text_reply(&["Hello"]) })
    });
    let gateway = before(&upstream.url("/process")).await;

    let response = gateway.get(&format!("/a2a/friday{CARD}")).await;
    let tag = response.header("etag").expect("a tag").to_owned();
    let path = format!("/a2a/friday{CARD}");
    let again = gateway.open("GET", &path, &[("if-none-match", &tag)], b"").await.status().await;
    assert_eq!(again, 304);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": { "message": {
        "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "hi" }]
    } } });
    let task = gateway.post("/a2a/friday", &body).await.json();
    assert_eq!(task["result"]["artifacts"][0]["parts"][0]["text"], "Hello", "{task}");
}

#[tokio::test]
async fn an_agent_without_a_server_uses_the_card_of_its_configuration() {
    let gateway = Gateway::start(&format!("{DEMO}{ROUTE}")).await;
    assert_eq!(gateway.get(&format!("/a2a/demo{CARD}")).await.json()["name"], "demo");
}

#[tokio::test]
async fn cards_use_the_url_of_a_trusted_proxy_only() {
    let received = [
        ("a2a-version", "1.0"),
        ("x-forwarded-host", "agents.example"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "8443"),
        ("x-forwarded-prefix", "/gateway/"),
    ];
    let lies = [received[0], ("x-forwarded-host", "u@evil.example/x"), ("x-forwarded-proto", "javascript")];

    for (trusted, headers, url) in [
        ("\"127.0.0.1\"", &received[..], "https://agents.example:8443/gateway/a2a/demo"),
        ("\"127.0.0.1\"", &lies[..], "http://localhost/a2a/demo"),
        ("", &received[..], "http://localhost/a2a/demo"),
    ] {
        let server = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\ntrusted_proxies = [{trusted}]\nallowed_hosts = [\"agents.example\"]\n"
        );
        let route = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
        let gateway = Gateway::with_config(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{route}")).await;
        let card = gateway.open("GET", &format!("/a2a/demo{CARD}"), headers, b"").await.response().await.json();
        assert_eq!(card["supportedInterfaces"][0]["url"], url);
    }
}

#[tokio::test]
async fn a_client_that_loses_the_last_segment_of_the_url_finds_the_card_of_the_only_route_there() {
    let beside = format!("/a2a{CARD}");
    let one = Gateway::start(&format!("{DEMO}[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\n")).await;
    assert_eq!(one.get(&beside).await.json()["name"], "demo");
    let other = agent("friday", "http://127.0.0.1:9/process", "", "");
    let two = format!("{DEMO}{other}[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\n");
    assert_eq!(Gateway::start(&two).await.get(&beside).await.status, 404, "of two agents, none is the one");
}
