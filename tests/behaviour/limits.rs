//! Limits of concurrent clients: each limit of the server refuses with its code, names the time of a retry, and admits
//! the next client once another one has disconnected.
//!
//! Not here: connections and slow clients (`slow_clients.rs`), bodies (`bodies.rs`), and the limits of single callers.

use serde_json::json;

use crate::support::agent::text_reply_then_hang;
use crate::support::gateway::{DEMO, Gateway, ROUTE, agent, user_turn};
use crate::support::poll_until;
use crate::support::socket::{Socket, SocketFrame};
use crate::support::upstream::Upstream;

const RESPONSES: &str = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";

async fn gateway(server: &str, agents: &str) -> Gateway {
    let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n");
    Gateway::with_config(&format!("{server}[store]\nkind = \"memory\"\n{agents}{ROUTE}{RESPONSES}")).await
}

#[tokio::test]
async fn requests_that_are_answered_at_the_same_time_are_limited() {
    let upstream = Upstream::always(text_reply_then_hang(&["hi"]));
    let gateway = gateway("limits.followers = 2", &agent("friday", &upstream.url("/process"), "", "")).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
        assert_eq!(stream.status().await, 200);
        open.push(stream);
    }

    let refused = gateway.post("/agents/friday/process", &user_turn("hi")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
    assert_eq!(refused.json()["code"], json!("GATEWAY_OVERLOADED"));
    assert_eq!(upstream.requests().len(), 2, "the agent is not asked");
    // The paths of the gateway itself are always answered.
    assert_eq!(gateway.get("/healthz").await.status, 200);

    open.pop();
    poll_until("a place", async || (gateway.get("/agents/friday/runs").await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn websockets_are_limited_in_total_and_per_address() {
    for (limits, status) in [("limits = { sockets = 2 }", 503), ("limits = { sockets_per_caller = 2 }", 429)] {
        let gateway = gateway(limits, DEMO).await;
        let first = Socket::open(gateway.address, "/v1/responses").await;
        let _second = Socket::open(gateway.address, "/v1/responses").await;
        let (refused, _) = Socket::try_open(gateway.address, "/v1/responses", "").await;
        assert_eq!(refused, status, "{limits}");

        drop(first);
        poll_until("a place", async || {
            let (opened, _) = Socket::try_open(gateway.address, "/v1/responses", "").await;
            (opened == 101).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn websockets_of_one_client_behind_a_proxy_are_counted_by_its_address() {
    let gateway = gateway("limits = { sockets_per_caller = 1 }\ntrusted_proxies = [\"127.0.0.1\"]", DEMO).await;
    let open = async |client: &str| {
        let header = format!("x-forwarded-for: 192.0.2.9, {client}\r\n");
        Socket::try_open(gateway.address, "/v1/responses", &header).await
    };
    let (status, _first) = open("203.0.113.1").await;
    assert_eq!(status, 101);
    assert_eq!(open("203.0.113.1").await.0, 429);
    let (status, _other) = open("203.0.113.2").await;
    assert_eq!(status, 101);
    // A proxy that reports no address stands for many clients.
    let (status, _unknown) = Socket::try_open(gateway.address, "/v1/responses", "").await;
    assert_eq!(status, 101);
    assert_eq!(Socket::try_open(gateway.address, "/v1/responses", "").await.0, 101);
}

#[tokio::test]
async fn a_websocket_message_has_a_time_limit_and_pings_must_be_answered() {
    let gateway = gateway("timeouts = { message = \"200ms\", ping = \"10s\" }", DEMO).await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    // The head of a frame whose payload never comes.
    socket.raw(&[0x81, 0x85, 0, 0]).await;
    assert_eq!(socket.next().await, SocketFrame::Close(Some(1008), "a message took too long".to_owned()));

    let gateway = self::gateway("timeouts = { ping = \"100ms\" }", DEMO).await;
    let mut socket = Socket::open(gateway.address, "/v1/responses").await;
    assert!(matches!(socket.next().await, SocketFrame::Ping(_)));
    assert_eq!(socket.next().await, SocketFrame::Close(Some(1008), "pings are not answered".to_owned()));
}
