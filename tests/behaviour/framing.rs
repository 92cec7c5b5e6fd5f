//! Ambiguous requests of HTTP/1.1: the gateway must not serve the request that a form hides, must not run the agent
//! twice, and must not answer the request that follows more than once. Not here: the forms (`support/framing.rs`).

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::agent::text_reply;
use crate::support::framing::{self, Form, mark};
use crate::support::gateway::{Gateway, agent};
use crate::support::upstream::Upstream;

/// Time of silence after which a form counts as answered.
const SILENCE: Duration = Duration::from_millis(700);
/// Forms that are sent at the same time.
const TOGETHER: usize = 24;

/// All answers of the gateway to a form and to a canary after it, until it closes or is silent.
async fn answer(address: SocketAddr, form: &Form, index: usize) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the gateway listens");
    // The gateway may refuse and close before it has read everything.
    let _ = stream.write_all(&form.with_canary(index)).await;
    let mut received = Vec::new();
    while let Ok(Ok(1..)) = tokio::time::timeout(SILENCE, stream.read_buf(&mut received)).await {}
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn ambiguous_requests_are_served_at_most_once_and_hide_no_others() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    let forms = framing::all();
    assert!(forms.len() >= 200, "{}", forms.len());

    let mut wrong = Vec::new();
    for (batch, together) in forms.chunks(TOGETHER).enumerate() {
        let indexed = together.iter().enumerate().map(|(index, form)| (batch * TOGETHER + index, form));
        let answers =
            join_all(indexed.map(async |(index, form)| (index, form, answer(gateway.address, form, index).await)))
                .await;
        for (index, form, received) in answers {
            if form.is_misread(index, &received) {
                wrong.push(format!("{}: {received}", form.name));
            }
        }
    }
    let requests = upstream.requests();
    for (index, form) in forms.iter().enumerate() {
        let mark = mark(index);
        let runs = requests.iter().filter(|request| String::from_utf8_lossy(&request.body).contains(&mark)).count();
        assert!(runs <= 1, "{} ran the agent {runs} times", form.name);
    }
    assert!(wrong.is_empty(), "{} of {} forms:\n{}", wrong.len(), forms.len(), wrong.join("\n\n"));

    // The gateway still serves.
    assert_eq!(gateway.get("/healthz").await.status, 200);
}
