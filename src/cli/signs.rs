//! Signs that a server speaks another protocol than the configured one: documents that it publishes about itself.
//!
//! Sends GET requests without credentials only, so nothing runs the agent. Not here: the protocol's own questions (the
//! connectors).

use std::time::Duration;

use interlingua_core::probe::Finding;
use interlingua_core::server_signs::ServerSigns;
use serde_json::Value;
use url::Url;

use super::guess::{KnownSigns, naming};
use interlingua_upstream::client;

/// Whether a document matches the configured protocol.
enum Evidence {
    Confirms,
    Contradicts(Finding),
}

/// Findings about published documents that contradict the configured protocol, or a note that none says anything.
pub(super) async fn of_other_protocols(known: &KnownSigns, protocol: &str, url: &Url, limit: Duration) -> Vec<Finding> {
    let read = tokio::time::timeout(limit, async {
        let named = naming(known, url, protocol).await;
        let origin = url.origin().ascii_serialization();
        let description = client::document(&format!("{origin}/openapi.json")).await;
        let described = description.and_then(|description| description_says(known, protocol, url.path(), &description));
        (named, described)
    });
    let (named, described) = read.await.unwrap_or_default();
    let has_vague_probe = known.iter().any(|(name, signs)| *name == protocol && signs.has_vague_probe);
    let is_unknown = named.is_none() && described.is_none() && has_vague_probe;
    let unknown = is_unknown.then(|| {
        Finding::note(format!(
            "nothing that the server publishes says whether it speaks {protocol}: --ask TEXT finds out"
        ))
    });
    let named = named.map(|(spoken, document)| {
        Finding::problem(format!(
            "the server's {document} names this URL as an agent of {spoken}: write protocol = \"{spoken}\""
        ))
    });
    let contradicts = match described {
        Some(Evidence::Contradicts(finding)) => Some(finding),
        Some(Evidence::Confirms) | None => None,
    };
    [named, contradicts, unknown].into_iter().flatten().collect()
}

/// Compares the server's OpenAPI description with the configured protocol. `None`: it says nothing about the endpoint.
fn description_says(known: &KnownSigns, protocol: &str, path: &str, description: &Value) -> Option<Evidence> {
    let paths = description.get("paths")?.as_object()?;
    let path = path.trim_end_matches('/');
    let of_models = || known.iter().filter(|(_, signs)| signs.is_of_models);
    if let Some((_, signs)) = of_models().find(|(name, _)| *name == protocol) {
        let is_there = |wanted: &str| paths.keys().any(|known| known == wanted);
        let below = signs.endpoints;
        if (path.ends_with(below[0]) && is_there(path)) || below.iter().any(|below| is_there(&format!("{path}{below}")))
        {
            return Some(Evidence::Confirms);
        }
        let is_spoken = |signs: &ServerSigns| {
            paths.keys().any(|known| signs.endpoints.iter().any(|endpoint| known.ends_with(endpoint)))
        };
        let others = of_models().filter(|(name, signs)| *name != protocol && is_spoken(signs));
        let spoken: Vec<&str> = others.map(|(name, _)| *name).collect();
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
    let has_all = |names: &[&str]| !names.is_empty() && names.iter().all(|name| fields.contains_key(*name));
    let spoken = known.iter().find(|(_, signs)| has_all(signs.request_fields))?.0;
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
        match description_says(&crate::Gateway::builtin().server_signs(), protocol, path, description)? {
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
