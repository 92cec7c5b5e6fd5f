//! The content of a message: its blocks as contents of the scenarios, and its end.
//!
//! Not here: the rules of the protocol (`answer`).

use interlingua_core::loss::ContentKind as K;
use interlingua_core_testkit::scenario::Item;
use serde_json::{Value, json};

use super::answer::{Answer, check_error};
use super::{REQUEST_APPROVAL, REQUEST_INPUT};
use crate::frames::{list, text};
use crate::{End, Open, ShownTurn, Talk};

/// The content of a message, and the items that wait for the client.
pub(super) fn shown(answer: &Answer, talk: &mut Talk) -> ShownTurn {
    let mut items = Vec::new();
    for block in &answer.blocks {
        let asked = read_block(block, answer.refusal(), &mut items);
        talk.open.extend(asked);
    }

    // Numbers are required: zeros are what is not known.
    let (input, output) = answer.usage();
    if input + output > 0 {
        items.push(Item::usage(input, output));
    }
    if answer.reason() == "max_tokens" {
        items.push(Item::new(K::EndReason, "max_output_tokens"));
    }
    if answer.error.is_object() {
        let code = check_error(&json!({ "type": "error", "error": answer.error, "request_id": "-" }), None);
        let end = if code == "canceled" { End::Canceled } else { End::Failed };
        return ShownTurn { items, end: Some(end), code };
    }
    talk.open.extend(answer.open());
    let is_whole = matches!(answer.reason(), "end_turn" | "tool_use" | "refusal");
    let end = if is_whole { End::Completed } else { End::Incomplete };
    ShownTurn { items, end: Some(end), code: String::new() }
}

/// One block. Returns what it asks in words.
fn read_block(block: &Value, refusal: &str, items: &mut Vec<Item>) -> Option<Open> {
    match text(block, "type") {
        "text" if !refusal.is_empty() && text(block, "text") == refusal => {
            items.push(Item::new(K::Refusal, refusal));
        }
        "text" => {
            let asked = read_text(text(block, "text"), items);
            let sources = list(block, "citations").map(|citation| Item::new(K::Annotation, text(citation, "url")));
            items.extend(sources);
            return asked;
        }
        "thinking" if text(block, "thinking").is_empty() => {}
        "thinking" => items.push(Item::new(K::Reasoning, text(block, "thinking"))),
        // Its text is its author's alone.
        "redacted_thinking" => {}
        "tool_use" if block["name"] == REQUEST_APPROVAL => {
            let asked = &block["input"];
            items.push(Item::call(K::Approval, text(asked, "name"), &asked["arguments"].to_string()));
        }
        "tool_use" if block["name"] == REQUEST_INPUT => read_question(&block["input"], items),
        "tool_use" => items.push(call(K::ClientCall, block)),
        "mcp_tool_use" => items.push(call(K::AgentCall, block)),
        "mcp_tool_result" => {
            let lines = list(block, "content").map(|part| text(part, "text"));
            items.push(Item::new(K::AgentOutput, lines.collect::<String>()));
        }
        other => panic!("a block of type {other:?}: {block}"),
    }
    None
}

fn call(kind: K, block: &Value) -> Item {
    Item::call(kind, text(block, "name"), &block["input"].to_string())
}

/// A question or a login, by its function.
fn read_question(asked: &Value, items: &mut Vec<Item>) {
    items.push(match asked["payload"]["url"].as_str() {
        Some(url) => Item::new(K::Login, url),
        None => Item::new(K::Question, asked["message"].as_str().unwrap_or_default()),
    });
    let schema = Some(&asked["response_schema"]).filter(|schema| schema.is_object());
    items.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
}

/// A text, which may ask: then its last line is a marker.
fn read_text(words: &str, items: &mut Vec<Item>) -> Option<Open> {
    let marker = words.lines().last().and_then(|line| line.strip_prefix('[')?.strip_suffix(']')?.split_once(' '));
    let Some((kind @ ("approval" | "question"), id)) = marker else {
        items.push(Item::new(K::Text, words));
        return None;
    };
    let asked = words.rsplit_once('\n').map_or(words, |(asked, _)| asked);
    items.push(match (kind, asked.rsplit_once('\n')) {
        ("approval", _) => Item::new(K::Approval, asked),
        (_, Some((url, how))) if how.contains("logged in") => Item::new(K::Login, url),
        _ => Item::new(K::Question, asked),
    });
    Some(Open { id: id.to_owned(), what: kind.to_owned() })
}
