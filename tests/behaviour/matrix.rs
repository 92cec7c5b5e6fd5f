//! One trial for each pair of a client protocol and a kind of agent, for each thing that both say they carry. The table
//! of all pairs is `docs/capabilities.md`, written from the same data.
//!
//! Not here: requests and answers of the protocols (`testing/support/src/pairs.rs`), and what protocols do with each
//! other's runs (`tests/behaviour/pairs.rs`).

use std::fmt::Write as _;
use std::path::Path;

use interlingua::config::{self, Env};
use interlingua_core::capability::{ClientCapabilities, Media, UpstreamCapabilities};
use interlingua_core::pending;
use serde_json::Value;

use crate::support::gateway::{DEMO, Gateway};
use crate::support::pairs::{ALL_PROTOCOLS, Decision, Protocol, ROUTES, frames, texts_of};

const MEMORY: &str = "[store]\nkind = \"memory\"\n";
/// The kinds of agents that are tried. Those on the network are the demo agent of a second gateway.
const AGENTS: [&str; 3] = ["demo", "agent-api", "a2a"];
const PICTURE: &str = "https://example.com/picture.png";

/// Something that a pair may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    Text,
    ClientTools,
    Approval(Decision),
    PictureToAgent,
    VideoToClient,
    Cancel,
    Resume,
    Usage,
    Reasoning,
}

const FEATURES: [Feature; 12] = [
    Feature::Text,
    Feature::ClientTools,
    Feature::Approval(Decision::Accept),
    Feature::Approval(Decision::Edit),
    Feature::Approval(Decision::Respond),
    Feature::Approval(Decision::Reject),
    Feature::PictureToAgent,
    Feature::VideoToClient,
    Feature::Cancel,
    Feature::Resume,
    Feature::Usage,
    Feature::Reasoning,
];

impl Feature {
    fn name(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::ClientTools => "client tools".to_owned(),
            Self::Approval(decision) => format!("approvals: {}", known(decision).as_str()),
            Self::PictureToAgent => "pictures to the agent".to_owned(),
            Self::VideoToClient => "videos to the client".to_owned(),
            Self::Cancel => "cancel".to_owned(),
            Self::Resume => "resume".to_owned(),
            Self::Usage => "usage".to_owned(),
            Self::Reasoning => "reasoning".to_owned(),
        }
    }

    /// Whether the client and the agent carry it. Every agent is stopped when its connection closes, and the gateway
    /// stores the streams that clients take up again.
    fn carried(self, client: &ClientCapabilities, agent: &UpstreamCapabilities) -> (bool, bool) {
        match self {
            Self::Text => (true, true),
            Self::ClientTools => (client.client_tools, agent.client_tools),
            Self::Approval(decision) => {
                (client.decisions.contains(&known(decision)), agent.decisions.contains(&known(decision)))
            }
            Self::PictureToAgent => (client.input_media.image, agent.input_media.image),
            Self::VideoToClient => (client.output_media.video, agent.output_media.video),
            Self::Cancel => (client.cancel, true),
            Self::Resume => (client.resume, true),
            Self::Usage => (client.usage, agent.usage),
            Self::Reasoning => (client.reasoning, agent.reasoning),
        }
    }
}

fn known(decision: Decision) -> pending::Decision {
    match decision {
        Decision::Accept => pending::Decision::Accept,
        Decision::Edit => pending::Decision::Edit,
        Decision::Reject => pending::Decision::Reject,
        _ => pending::Decision::Respond,
    }
}

/// The configuration of an agent named `demo`. `address`: the second gateway.
fn agent(kind: &str, address: &str) -> String {
    match kind {
        "demo" => DEMO.to_owned(),
        "agent-api" => {
            let url = format!("http://{address}/agents/demo/process");
            let upstream = format!("protocol = \"agent-api\"\nurl = \"{url}\"\napproval_extension = true");
            format!("[agents.demo.upstream]\n{upstream}\n")
        }
        "a2a" => {
            let url = format!("http://{address}/a2a/demo");
            format!("[agents.demo.upstream]\nprotocol = \"a2a\"\nurl = \"{url}\"\n")
        }
        other => {
            let options = if other == "agentscope" { "options = { agent_id = \"demo\" }\n" } else { "" };
            format!("[agents.demo.upstream]\nprotocol = \"{other}\"\nurl = \"http://{address}/agent\"\n{options}")
        }
    }
}

/// Every kind of agent: first those that are tried here, then the others.
fn all_agents() -> Vec<String> {
    let protocols = interlingua::Gateway::builtin().protocols();
    let others = protocols.upstream_names().filter(|name| !AGENTS.contains(name));
    AGENTS.into_iter().chain(others).map(str::to_owned).collect()
}

fn agent_capabilities(kind: &str) -> UpstreamCapabilities {
    let source = agent(kind, "127.0.0.1:1");
    let protocols = interlingua::Gateway::builtin().protocols();
    let parsed = config::read(&source, Path::new("gateway.toml"), &protocols, &Env::process());
    let (settings, _) = parsed.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
    settings.agents[0].upstream.capabilities.clone()
}

fn client_capabilities(protocol: Protocol) -> ClientCapabilities {
    let all = interlingua::Gateway::builtin().client_capabilities();
    let found = all.into_iter().find(|(name, _)| *name == protocol.name());
    found.unwrap_or_else(|| panic!("{protocol:?} is not built in")).1
}

/// Whether a usage with counted tokens stands anywhere in an answer.
fn has_usage(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(has_usage),
        Value::Object(fields) => {
            let total = ["total_tokens", "totalTokens", "output_tokens"].iter().find_map(|name| fields.get(*name));
            let counted = total.and_then(Value::as_u64).is_some_and(|tokens| tokens > 0);
            counted || fields.values().any(has_usage)
        }
        _ => false,
    }
}

async fn says(gateway: &Gateway, client: Protocol, session: &str, words: &str, picture: Option<&str>, expected: &str) {
    let answer = client.say(gateway, session, words, picture).await;
    assert_eq!(answer.status, 200, "{session}: {}", answer.text());
    assert!(texts_of(answer.text()).contains(expected), "{session}: {}", answer.text());
}

async fn try_out(gateway: &Gateway, client: Protocol, session: &str, feature: Feature) {
    match feature {
        Feature::Text => says(gateway, client, session, "echo carried", None, "carried").await,
        Feature::ClientTools => answers(gateway, client, session, Decision::Output).await,
        Feature::Approval(decision) => answers(gateway, client, session, decision).await,
        Feature::PictureToAgent => says(gateway, client, session, "look", Some(PICTURE), "I also got: image.").await,
        Feature::VideoToClient => {
            says(gateway, client, session, "video", None, "https://example.com/video.mp4").await;
        }
        Feature::Reasoning => says(gateway, client, session, "reasoning", None, "step by step").await,
        Feature::Usage => {
            let answer = client.say(gateway, session, "usage", None).await;
            let counted = answer.status == 200
                && match serde_json::from_str(answer.text()) {
                    Ok(whole) => has_usage(&whole),
                    Err(_) => frames(answer.text()).iter().any(has_usage),
                };
            assert!(counted, "{session}: {}", answer.text());
        }
        Feature::Cancel => {
            let (run, _open) = client.start_long(gateway, session).await;
            let canceled = client.cancel(gateway, &run).await.expect("declared");
            assert_eq!(canceled.status, 200, "{session}: {}", canceled.text());
            assert_eq!(Protocol::AgentApi.status(gateway, &run).await.as_deref(), Some("canceled"), "{session}");
        }
        Feature::Resume => {
            let (run, _open) = client.start_long(gateway, session).await;
            let mut taken_up = client.follow(gateway, &run).await.expect("declared");
            assert_eq!(taken_up.status().await, 200, "{session}");
            Protocol::AgentApi.cancel(gateway, &run).await.expect("supported");
            let received = frames(taken_up.read_response().await.text());
            let last = received.last().unwrap_or_else(|| panic!("{session}: no frames")).to_string().to_lowercase();
            assert!(last.contains("cancel"), "{session}: {last}");
        }
    }
}

async fn answers(gateway: &Gateway, client: Protocol, session: &str, decision: Decision) {
    let interrupt = client.ask(gateway, session, decision.demo_command()).await;
    let answer = client.answer(gateway, &interrupt, decision).await.expect("declared");
    assert_eq!(answer.status, 200, "{session}: {}", answer.text());

    // AG-Kit and Responses put JSON into strings.
    let received = texts_of(answer.text()).replace("\\\"", "\"");
    assert!(received.contains(decision.expected_text()), "{session}: {}", answer.text());
}

#[tokio::test]
async fn content_that_both_sides_support_passes() {
    let behind = Gateway::with_config(&format!("{MEMORY}{DEMO}{ROUTES}")).await;
    for kind in AGENTS {
        let agent_side = agent_capabilities(kind);
        let gateway =
            Gateway::with_config(&format!("{MEMORY}{}{ROUTES}", agent(kind, &behind.address.to_string()))).await;
        for client in ALL_PROTOCOLS {
            let client_side = client_capabilities(client);
            for feature in FEATURES.into_iter().filter(|one| one.carried(&client_side, &agent_side) == (true, true)) {
                let session = format!("{}-{kind}-{}", client.name(), feature.name().replace([' ', ':'], "-"));
                try_out(&gateway, client, &session, feature).await;
            }
        }
    }
}

/// The text of `docs/capabilities.md`.
fn table() -> String {
    let mut text = "# Capabilities\n\n\
        The features that the adapter of each protocol declares with default options, and the tested features of each pair.\n\
        Generated by `INSTA_UPDATE=always cargo test -p interlingua --test behaviour matrix`.\n\n\
        ## Clients\n\n\
        | protocol | streaming | runs tools | declares tools | decisions | media to agents | media from agents | cancel | resume | usage | reasoning |\n\
        | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (name, client) in interlingua::Gateway::builtin().client_capabilities() {
        let flags = [client.streaming, client.client_tools, client.tool_declarations].map(yes).join(" | ");
        let last = [client.cancel, client.resume, client.usage, client.reasoning].map(yes).join(" | ");
        let (decisions, input, output) =
            (decisions(client.decisions), media(client.input_media), media(client.output_media));
        let _ = writeln!(text, "| `{name}` | {flags} | {decisions} | {input} | {output} | {last} |");
    }

    text.push_str(
        "\n## Agents\n\n\
        An agent of the Agent API accepts edits only with `approval_extension = true`, which this table assumes. All others have\n\
        their default options. All agents except those of `hitl` can be stopped.\n\n\
        | protocol | streaming | history | client tools | decisions | media to the agent | media from the agent | usage | reasoning |\n\
        | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for kind in &all_agents() {
        let agent = agent_capabilities(kind);
        let history = serde_json::to_string(&agent.history).expect("JSON").replace(['"'], "").replace('_', " ");
        let last = [agent.usage, agent.reasoning].map(yes).join(" | ");
        let _ = writeln!(
            text,
            "| `{kind}` | {} | {history} | {} | {} | {} | {} | {last} |",
            yes(agent.streaming),
            yes(agent.client_tools),
            decisions(agent.decisions),
            media(agent.input_media),
            media(agent.output_media),
        );
    }

    text.push_str(
        "\n## Pairs\n\n\
        A ✓ marks a tested feature. Any other cell names the side that lacks the feature: the client, the agent, or both. [The matrix](matrix.md) has the pairs with all other agents.\n\n",
    );
    let names: Vec<String> = FEATURES.iter().map(|feature| feature.name()).collect();
    let _ = writeln!(text, "| client | agent | {} |", names.join(" | "));
    let _ = writeln!(text, "| --- | --- |{}", " --- |".repeat(names.len()));
    for client in ALL_PROTOCOLS {
        for kind in AGENTS {
            let (client_side, agent_side) = (client_capabilities(client), agent_capabilities(kind));
            let cells = FEATURES.map(|feature| match feature.carried(&client_side, &agent_side) {
                (true, true) => "✓",
                (false, true) => "client",
                (true, false) => "agent",
                (false, false) => "both",
            });
            let _ = writeln!(text, "| `{}` | `{kind}` | {} |", client.name(), cells.join(" | "));
        }
    }
    text
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "–" }
}

fn decisions(decisions: &[pending::Decision]) -> String {
    let words: Vec<&str> = decisions.iter().map(|decision| decision.as_str()).collect();
    if words.is_empty() { "–".to_owned() } else { words.join(", ") }
}

fn media(media: Media) -> String {
    let kinds = [(media.image, "image"), (media.audio, "audio"), (media.video, "video"), (media.file, "file")];
    let words: Vec<&str> = kinds.iter().filter(|(carried, _)| *carried).map(|(_, word)| *word).collect();
    if words.is_empty() { "–".to_owned() } else { words.join(", ") }
}

#[test]
fn the_table_of_capabilities_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/capabilities.md");
    let current = table();
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, &current).expect("the table is written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, current, "write docs/capabilities.md again with INSTA_UPDATE=always");
}
