//! Errors of agents, from socket to socket: every class in every form, reported by an agent of every protocol and read by
//! a client of every protocol. `docs/errors.md` is the table of all classes, written from the same data.
//!
//! Not here: agents that break off or fall silent in the middle of an answer (`tests/behaviour`).

#[path = "../support/mod.rs"]
mod support;

mod agents;
mod clients;
mod expected;
mod page;
mod rows;

use std::sync::{Arc, Mutex};

use agents::{CONNECTORS, Connector, FORMS, Form, Script};
use clients::{ask, judge};
use futures_util::future::join_all;
use interlingua_core::FaultKind as K;
use rows::ROWS;
use support::gateway::Gateway;
use support::pairs::{ALL_PROTOCOLS, Protocol, ROUTES};
use support::upstream::{Reply, Upstream, unused_address};

const STORE: &str = "[store]\nkind = \"memory\"\n";

/// Plays all rows with one agent. Returns what is wrong, and how many answers were read.
async fn play(gateway: &Gateway, connector: &'static Connector, script: &Script) -> (Vec<String>, usize) {
    let mut wrong = Vec::new();
    let mut played = 0;
    for (row, number) in ROWS.iter().zip(0..) {
        for form in FORMS {
            let Some(class) = connector.class(row, form) else { continue };
            *script.lock().expect("no other test") = (row, form);
            for client in ALL_PROTOCOLS {
                played += 1;
                let session = format!("{}-{number}-{form:?}-{client:?}", connector.name);
                // Answers that are no streams in every other row.
                let streamed = number % 2 == 0 || client == Protocol::AgentApi;
                let answer = ask(gateway, client, connector.name, &session, streamed).await;
                let what = format!("{} in {form:?} from {} to {client:?}", row.name, connector.name);
                if let Err(error) = judge(client, &answer, expected::of(class), form == Form::MidStream) {
                    wrong.push(format!("{what}: {error}"));
                }
                let keeps_pause = class == K::UpstreamRateLimited && form == Form::Status && answer.status == 429;
                if keeps_pause && answer.header("retry-after") != Some("7") {
                    wrong.push(format!("{what}: the pause is {:?}", answer.header("retry-after")));
                }
            }
        }
    }
    (wrong, played)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_of_every_agent_is_told_to_every_client_as_its_class() {
    let scripts: Vec<Script> = CONNECTORS.iter().map(|_| Arc::new(Mutex::new((&ROWS[0], Form::Status)))).collect();
    let servers: Vec<Upstream> =
        CONNECTORS.iter().zip(&scripts).map(|(connector, script)| connector.serve(script)).collect();
    let agents: String = CONNECTORS.iter().zip(&servers).map(|(one, server)| one.config_of(server)).collect();
    let gateway = Gateway::with_config(&format!("{STORE}{agents}{ROUTES}")).await;

    let all = CONNECTORS.iter().zip(&scripts).map(|(connector, script)| play(&gateway, connector, script));
    let (wrong, played): (Vec<_>, Vec<_>) = join_all(all).await.into_iter().unzip();
    let wrong = wrong.concat();
    assert!(played.iter().sum::<usize>() > ROWS.len() * CONNECTORS.len() * ALL_PROTOCOLS.len());
    assert!(wrong.is_empty(), "{} of {played:?}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_cannot_be_reached_or_are_silent_are_told_apart() {
    let silent = Upstream::always(Reply::silence());
    let closed = format!("http://{}", unused_address());
    let agents: String = CONNECTORS
        .iter()
        .map(|one| {
            let first_byte = "timeouts = { first_byte = \"100ms\" }\n";
            one.config(&format!("closed-{}", one.name), &closed, "")
                + &one.config(&format!("silent-{}", one.name), &silent.url(""), first_byte)
        })
        .collect();
    let gateway = Gateway::with_config(&format!("{STORE}{agents}{ROUTES}")).await;

    let play = |connector: &'static Connector, client: Protocol, place: &'static str, class: K| {
        let gateway = &gateway;
        async move {
            let agent = format!("{place}-{}", connector.name);
            let answer = ask(gateway, client, &agent, &format!("{agent}-{client:?}"), true).await;
            let judged = judge(client, &answer, expected::of(class), false);
            judged.err().map(|error| format!("{agent} to {client:?}: {error}"))
        }
    };
    let all = CONNECTORS.iter().flat_map(|connector| {
        ALL_PROTOCOLS.into_iter().flat_map(move |client| {
            [(connector, client, "closed", K::UpstreamUnreachable), (connector, client, "silent", K::UpstreamTimeout)]
        })
    });
    let all = all.map(|(connector, client, place, class)| play(connector, client, place, class));
    let wrong: Vec<String> = join_all(all).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
