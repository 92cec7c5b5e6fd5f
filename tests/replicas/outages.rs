//! The database is away for all gateways for longer than a lease: the one that finds it again first takes nothing over
//! from the others, which come back a little later.
//!
//! Not here: restarts and failovers under load (`cargo xtask faults replicas-restarted`).

use std::time::Duration;

use interlingua_testing_postgres::Proxy;

use crate::support::agent::text_reply_until;
use crate::support::gateway::{JSON, user_turn_in};
use crate::support::transcript::Transcript;
use crate::support::upstream::Upstream;
use crate::{LEASE, cluster, id_of};

#[tokio::test]
async fn gateways_that_were_all_without_the_database_keep_their_runs() {
    let upstream = Upstream::always(text_reply_until(&["one ", "two"], "on"));
    let stand = cluster(&upstream, "", "");
    let server = stand.database().server().address();
    let (way_here, way_there) = (Proxy::start(server).unwrap(), Proxy::start(server).unwrap());
    let here = stand.process_through(&stand.database().url_at(way_here.address));
    let there = stand.process_through(&stand.database().url_at(way_there.address));
    let body = user_turn_in("s", "hi").to_string();
    let mut stream = here.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
    let mut frames = stream.read_until("two").await;
    // From now on each may take over from the other.
    tokio::time::sleep(LEASE).await;

    way_here.refuse();
    way_there.refuse();
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    way_there.accept();
    // More than one look for gateways that are lost.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    way_here.accept();

    upstream.open("on");
    frames.extend(stream.frames().await);
    Transcript::parse(&frames).expect_completed();
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    for gateway in [&here, &there] {
        let mut stream = gateway.open("GET", &path, &[], b"").await;
        assert_eq!(stream.frames().await, frames, "all have the same");
    }
}
