//! Errors of agents, from socket to socket: every class in every form, reported by an agent of every protocol and read
//! by a client of every protocol. `docs/errors.md` is the table of all classes, written from the same data.
//!
//! Not here: agents that break off or fall silent in the middle of an answer (`tests/behaviour`).

use interlingua_testing_support as support;

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

/// The clients that read an error. All of them read one error of each class in the common forms; of the others one or
/// two do, in turn: the class is all that clients see.
fn readers(connector: &Connector, number: usize, form: Form) -> Vec<Protocol> {
    let class = connector.class(&ROWS[number], form);
    let is_first = ROWS[..number].iter().all(|row| connector.class(row, form) != class);
    let is_common = matches!(form, Form::Status | Form::FirstEvent | Form::FirstJson | Form::MidStream);
    let count = match (is_first, is_common) {
        (true, true) => ALL_PROTOCOLS.len(),
        (true, false) => 2,
        (false, _) => 1,
    };
    let first = number + FORMS.iter().position(|other| *other == form).unwrap_or_default();
    (first..first + count).map(|place| ALL_PROTOCOLS[place % ALL_PROTOCOLS.len()]).collect()
}

/// Plays all rows with an agent of this protocol.
async fn play(name: &str) {
    let connector = CONNECTORS.iter().find(|connector| connector.name == name).expect("a protocol of agents");
    let script: Script = Arc::new(Mutex::new((&ROWS[0], Form::Status)));
    let server = connector.serve(&script);
    let gateway = Gateway::with_config(&format!("{STORE}{}{ROUTES}", connector.config_of(&server))).await;

    let mut wrong = Vec::new();
    for (row, number) in ROWS.iter().zip(0..) {
        for form in FORMS {
            let Some(class) = connector.class(row, form) else { continue };
            *script.lock().expect("no other test") = (row, form);
            for client in readers(connector, number, form) {
                let session = format!("{number}-{form:?}-{client:?}");
                // Answers without a stream in every other row.
                let streamed = number % 2 == 0 || client == Protocol::AgentApi;
                let answer = ask(&gateway, client, name, &session, streamed).await;
                let what = format!("{} in {form:?} to {client:?}", row.name);
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
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! played {
    ($($test:ident: $name:literal,)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                play($name).await;
            }
        )+

        #[test]
        fn every_protocol_of_agents_is_played() {
            let mut played = [$($name),+];
            let mut known: Vec<&str> = CONNECTORS.iter().map(|connector| connector.name).collect();
            played.sort_unstable();
            known.sort_unstable();
            assert_eq!(played, *known);
        }
    };
}

played! {
    errors_of_agents_of_the_agent_api: "agent-api",
    errors_of_chat_completions_servers: "chat-completions",
    errors_of_responses_servers: "responses",
    errors_of_messages_servers: "anthropic-messages",
    errors_of_a2a_agents: "a2a",
    errors_of_ag_ui_agents: "ag-ui",
    errors_of_ag_kit_agents: "ag-kit",
    errors_of_hitl_services: "hitl",
    errors_of_agentscope_services: "agentscope",
}

#[tokio::test]
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
