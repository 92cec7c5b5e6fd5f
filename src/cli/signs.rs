//! Signs that a server speaks another protocol than the configured one: documents that it publishes about itself.
//!
//! Sends GET requests without credentials only, so nothing runs the agent. Not here: the protocol's own questions (the
//! connectors).

use std::time::Duration;

use interlingua_core::probe::Finding;
use serde_json::Value;
use url::Url;

use super::guess::{PATHS, names_url};
use interlingua_upstream::client;

/// Paths below the URL of a model server at which each protocol answers.
const MODEL_PATHS: [(&str, &[&str]); 3] = [
    ("chat-completions", &["/chat/completions"]),
    ("responses", &["/responses"]),
    ("anthropic-messages", &["/messages", "/v1/messages"]),
];

/// Fields of a request that only one protocol has, and the protocol.
const FIELDS: [(&[&str], &str); 3] =
    [(&["threadId", "runId"], "ag-ui"), (&["jsonrpc", "method"], "a2a"), (&["input", "session_id"], "agent-api")];

/// Protocols whose own probe reads nothing that only they have.
const SILENT: [&str; 3] = ["agent-api", "ag-ui", "ag-kit"];

/// Whether a document matches the configured protocol.
enum Evidence {
    Confirms,
    Contradicts(Finding),
}

/// Findings about published documents that contradict the configured protocol, or a note that none says anything.
pub(super) async fn of_other_protocols(protocol: &str, url: &Url, limit: Duration) -> Vec<Finding> {
    let read = tokio::time::timeout(limit, async {
        let card = if protocol == "a2a" { None } else { card(url).await };
        let origin = url.origin().ascii_serialization();
        let description = client::document(&format!("{origin}/openapi.json")).await;
        let described = description.and_then(|description| description_says(protocol, url.path(), &description));
        (card, described)
    });
    let (card, described) = read.await.unwrap_or_default();
    let is_known = card.is_some() || described.is_some() || !SILENT.contains(&protocol);
    let unknown = (!is_known).then(|| {
        Finding::note(format!(
            "nothing that the server publishes says whether it speaks {protocol}: --ask TEXT finds out"
        ))
    });
    let contradicts = match described {
        Some(Evidence::Contradicts(finding)) => Some(finding),
        Some(Evidence::Confirms) | None => None,
    };
    [card, contradicts, unknown].into_iter().flatten().collect()
}

/// An agent card that names this URL.
async fn card(url: &Url) -> Option<Finding> {
    let card = client::document(&format!("{}/.well-known/agent-card.json", url.origin().ascii_serialization())).await?;
    names_url(&card, url).then(|| {
        Finding::problem("the server's agent card names this URL as an A2A agent: write protocol = \"a2a\"".to_owned())
    })
}

/// Compares the server's OpenAPI description with the configured protocol. `None`: it says nothing about the endpoint.
fn description_says(protocol: &str, path: &str, description: &Value) -> Option<Evidence> {
    let paths = description.get("paths")?.as_object()?;
    let path = path.trim_end_matches('/');
    if let Some((_, below)) = MODEL_PATHS.iter().find(|(known, _)| *known == protocol) {
        let is_there = |wanted: &str| paths.keys().any(|known| known == wanted);
        if (path.ends_with(below[0]) && is_there(path)) || below.iter().any(|below| is_there(&format!("{path}{below}")))
        {
            return Some(Evidence::Confirms);
        }
        let spoken = |(ending, protocol): &(&str, &'static str)| {
            paths.keys().any(|known| known.ends_with(ending)).then_some(*protocol)
        };
        let spoken: Vec<&str> = PATHS[..3].iter().filter_map(spoken).filter(|spoken| *spoken != protocol).collect();
        return (!spoken.is_empty()).then(|| {
            let (has, below) = (spoken.join(" or "), below[0]);
            let text = format!("the server has no {path}{below}: its openapi.json has endpoints of {has}");
            Evidence::Contradicts(Finding::problem(text))
        });
    }

    let post = paths.iter().find(|(known, _)| is_path(known, path))?.1.get("post")?;
    let schema = post.pointer("/requestBody/content/application~1json/schema")?;
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(reference) => description.pointer(reference.strip_prefix('#')?)?,
        None => schema,
    };
    let fields = schema.get("properties")?.as_object()?;
    let spoken = FIELDS.iter().find(|(names, _)| names.iter().all(|name| fields.contains_key(*name)))?.1;
    if spoken == protocol {
        return Some(Evidence::Confirms);
    }
    let text =
        format!("the server's openapi.json describes an endpoint of {spoken} here: write protocol = \"{spoken}\"");
    Some(Evidence::Contradicts(Finding::problem(text)))
}

/// Whether a path of an OpenAPI description, with parameters in braces, is this one.
fn is_path(described: &str, path: &str) -> bool {
    let segments = |path: &str| path.trim_matches('/').split('/').map(str::to_owned).collect::<Vec<_>>();
    let (described, path) = (segments(described), segments(path));
    let is_same = |(described, actual): (&String, &String)| described.starts_with('{') || described == actual;
    described.len() == path.len() && described.iter().zip(&path).all(is_same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn contradiction(protocol: &str, path: &str, description: &Value) -> Option<String> {
        match description_says(protocol, path, description)? {
            Evidence::Contradicts(finding) => Some(finding.text),
            Evidence::Confirms => None,
        }
    }

    #[test]
    fn a_description_shows_which_protocol_an_endpoint_speaks() {
        let described = |fields: &[&str]| {
            let properties: serde_json::Map<String, Value> =
                fields.iter().map(|field| ((*field).to_owned(), json!({}))).collect();
            json!({
                "paths": { "/agents/{name}": { "post": { "requestBody": { "content": {
                    "application/json": { "schema": { "$ref": "#/components/schemas/Input" } } } } } } },
                "components": { "schemas": { "Input": { "properties": properties } } },
            })
        };
        let ag_ui = described(&["threadId", "runId", "messages"]);
        let wrong = contradiction("agent-api", "/agents/x", &ag_ui).expect("a problem");
        assert!(wrong.contains("protocol = \"ag-ui\""), "{wrong}");
        assert_eq!(
            (contradiction("ag-ui", "/agents/x", &ag_ui), contradiction("agent-api", "/other", &ag_ui)),
            (None, None)
        );
        assert!(contradiction("ag-ui", "/agents/x/", &described(&["jsonrpc", "method", "id"])).is_some());
        assert_eq!(
            contradiction("agent-api", "/agents/x", &described(&["question"])),
            None,
            "an agent of no known protocol"
        );
    }

    #[test]
    fn a_model_server_without_the_endpoint_of_a_protocol_is_recognized() {
        let vllm = json!({ "paths": { "/v1/chat/completions": {}, "/v1/completions": {}, "/v1/models": {} } });
        let wrong = contradiction("anthropic-messages", "/v1", &vllm).expect("a problem");
        assert!(wrong.contains("endpoints of chat-completions"), "{wrong}");
        assert_eq!(contradiction("chat-completions", "/v1", &vllm), None);
        assert_eq!(contradiction("chat-completions", "/v1/chat/completions", &vllm), None);
        let both = json!({ "paths": { "/v1/chat/completions": {}, "/v1/messages": {} } });
        assert_eq!(
            (contradiction("anthropic-messages", "", &both), contradiction("anthropic-messages", "/v1", &both)),
            (None, None)
        );
        assert_eq!(contradiction("responses", "/v1", &json!({ "paths": {} })), None, "nothing is known");
    }
}
