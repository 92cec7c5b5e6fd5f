//! A strict client (sections 9 and 14): rebuilds the response from the events alone, and fails on everything on which
//! an SDK would fail or show a wrong result.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Reads a stream to its end and returns the final response.
pub fn read(events: &[(String, Value)]) -> Value {
    let mut reader = Reader::default();
    let mut last = None;
    for (index, (name, event)) in events.iter().enumerate() {
        assert!(last.is_none(), "{name} after the end");
        assert_eq!(event["sequence_number"], index, "numbers without gaps");
        match (index, name.as_str()) {
            (0, "response.created") => assert_eq!(event["response"]["output"], json!([])),
            (0, _) => panic!("the first event is {name}"),
            (_, "response.completed" | "response.failed" | "response.incomplete") => {
                last = Some(event["response"].clone())
            }
            _ => reader.event(name, event),
        }
    }

    let last = last.expect("the stream ends");
    reader.end(&last);
    last
}

#[derive(Default)]
struct Reader {
    items: Vec<Item>,
    by_id: BTreeMap<String, usize>,
}

struct Item {
    added: Value,
    done: Option<Value>,
    /// Texts by location: `content` or `summary` with an index, or the item itself.
    texts: BTreeMap<(String, u64), Text>,
}

#[derive(Default)]
struct Text {
    joined: String,
    done: Option<String>,
    part: Option<Value>,
    closed: bool,
}

impl Reader {
    fn item(&mut self, event: &Value) -> &mut Item {
        let index = event["output_index"].as_u64().expect("an index") as usize;
        let item = self.items.get_mut(index).unwrap_or_else(|| panic!("no item {index} was added: {event}"));
        assert_eq!(event["item_id"], item.added["id"], "the item of that index");
        assert!(item.done.is_none(), "the item is done: {event}");
        item
    }

    fn text(&mut self, event: &Value, location: &str) -> &mut Text {
        let key = match location {
            "content" => ("content".to_owned(), event["content_index"].as_u64().expect("an index")),
            "summary" => ("summary".to_owned(), event["summary_index"].as_u64().expect("an index")),
            _ => (String::new(), 0),
        };
        let item = self.item(event);

        let known = location.is_empty() || item.texts.contains_key(&key);
        assert!(known, "the part was not added: {event}");
        let text = item.texts.entry(key).or_default();
        assert!(!text.closed, "the part is closed: {event}");
        text
    }

    fn event(&mut self, name: &str, event: &Value) {
        let word = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("{name} in {event}")).to_owned();
        match name {
            "response.in_progress" | "response.queued" => assert_eq!(event["response"]["output"], json!([])),
            "response.output_item.added" => {
                assert_eq!(event["output_index"], self.items.len(), "indexes append: {event}");
                let item = event["item"].clone();
                assert_empty(&item);
                let id = item["id"].as_str().expect("an id").to_owned();
                assert!(self.by_id.insert(id, self.items.len()).is_none(), "ids are unique: {event}");
                self.items.push(Item { added: item, done: None, texts: BTreeMap::new() });
            }
            "response.output_item.done" => {
                let index = event["output_index"].as_u64().expect("an index") as usize;
                let item = &mut self.items[index];
                assert!(item.done.is_none(), "done once: {event}");
                for name in ["id", "type", "call_id", "name"] {
                    assert_eq!(event["item"][name], item.added[name], "what identifies an item is final: {event}");
                }
                item.done = Some(event["item"].clone());
                item.check();
            }
            "response.content_part.added" | "response.reasoning_summary_part.added" => {
                let location = if name.contains("summary") { "summary" } else { "content" };
                let index = event[format!("{location}_index")].as_u64().expect("an index");
                let item = self.item(event);
                let before = item.texts.iter().filter(|((kind, _), _)| kind == location);
                assert!(before.clone().all(|(_, text)| text.closed), "one part after the other: {event}");
                assert_eq!(before.count() as u64, index, "parts append: {event}");
                item.texts.insert((location.to_owned(), index), Text::default());
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                let location = if name.contains("summary") { "summary" } else { "content" };
                let text = self.text(event, location);
                text.part = Some(event["part"].clone());
                text.closed = true;
            }
            "response.output_text.delta" | "response.refusal.delta" | "response.reasoning_text.delta" => {
                assert!(!word("delta").is_empty());
                self.text(event, "content").joined.push_str(&word("delta"));
            }
            "response.reasoning_summary_text.delta" => self.text(event, "summary").joined.push_str(&word("delta")),
            "response.output_text.done" | "response.reasoning_text.done" => {
                self.text(event, "content").done = Some(word("text"));
            }
            "response.refusal.done" => self.text(event, "content").done = Some(word("refusal")),
            "response.reasoning_summary_text.done" => self.text(event, "summary").done = Some(word("text")),
            "response.function_call_arguments.delta"
            | "response.mcp_call_arguments.delta"
            | "response.custom_tool_call_input.delta" => self.text(event, "").joined.push_str(&word("delta")),
            "response.function_call_arguments.done" | "response.mcp_call_arguments.done" => {
                self.text(event, "").done = Some(word("arguments"));
            }
            "response.custom_tool_call_input.done" => self.text(event, "").done = Some(word("input")),
            "response.output_text.annotation.added" => {
                let item = self.item(event);
                assert!(
                    item.texts
                        .contains_key(&("content".to_owned(), event["content_index"].as_u64().expect("an index")))
                );
            }
            "response.mcp_call.in_progress"
            | "response.mcp_call.completed"
            | "response.mcp_call.failed"
            | "response.mcp_list_tools.in_progress"
            | "response.mcp_list_tools.completed"
            | "response.mcp_list_tools.failed"
            | "response.image_generation_call.in_progress"
            | "response.image_generation_call.generating"
            | "response.image_generation_call.completed" => {
                self.item(event);
            }
            _ => panic!("unknown event: {name}"),
        }
    }

    fn end(&self, last: &Value) {
        let done: Vec<Value> = self
            .items
            .iter()
            .map(|item| item.done.clone().unwrap_or_else(|| panic!("never done: {}", item.added)))
            .collect();
        assert_eq!(last["output"], Value::Array(done), "the final output has the items of the stream");

        let ended_well = last["status"] == "completed";
        assert_eq!(last["completed_at"].is_u64(), ended_well, "{last}");
        assert_eq!(last["error"].is_object(), last["status"] == "failed", "{last}");
        assert_eq!(last["incomplete_details"].is_object(), last["status"] == "incomplete", "{last}");

        for name in KEYS {
            assert!(last.get(name).is_some(), "the key {name} is written");
        }
        for name in NEVER_NULL {
            assert!(!last[name].is_null(), "{name} is never null");
        }
    }
}

impl Item {
    /// The joined deltas equal the text in the done event, in the part and in the item.
    fn check(&self) {
        let done = self.done.as_ref().expect("it is done");
        for ((location, index), text) in &self.texts {
            assert_eq!(text.done.as_deref(), Some(text.joined.as_str()), "deltas joined: {done}");
            let index = *index as usize;
            let text_in_item = match location.as_str() {
                "content" => {
                    assert!(text.closed, "the part is closed before its item: {done}");
                    let part = &done["content"][index];
                    let mut expected = text.part.clone().expect("closed with a part");
                    // Annotations may come with the end of the message.
                    if let Some(late) = part.get("annotations") {
                        expected["annotations"] = late.clone();
                    }
                    assert_eq!(part, &expected);
                    part.get("text").or_else(|| part.get("refusal"))
                }
                "summary" => {
                    assert_eq!(Some(&done["summary"][index]), text.part.as_ref());
                    done["summary"][index].get("text")
                }
                _ => done.get("arguments").or_else(|| done.get("input")),
            };
            assert_eq!(text_in_item.and_then(Value::as_str), Some(text.joined.as_str()), "{done}");
        }

        let parts = done["content"].as_array().map_or(0, Vec::len);
        let sent = self.texts.keys().filter(|(location, _)| location == "content").count();
        if done["type"] == "message" || done["type"] == "reasoning" {
            assert_eq!(parts, sent, "every part was sent: {done}");
        }
    }
}

/// `output_item.added` carries an item without content.
fn assert_empty(item: &Value) {
    match item["type"].as_str().expect("a type") {
        "message" => assert_eq!(
            (&item["content"], &item["status"], &item["role"]),
            (&json!([]), &json!("in_progress"), &json!("assistant"))
        ),
        "reasoning" => assert_eq!(item["summary"], json!([])),
        "function_call" => assert_eq!((&item["arguments"], &item["status"]), (&json!(""), &json!("in_progress"))),
        "custom_tool_call" => assert_eq!(item["input"], ""),
        "mcp_call" => assert_eq!((&item["arguments"], &item["output"]), (&json!(""), &Value::Null)),
        _ => {}
    }
}

const KEYS: &[&str] = &[
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "background",
    "store",
    "error",
    "incomplete_details",
    "instructions",
    "model",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "metadata",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "text",
    "reasoning",
    "truncation",
    "max_output_tokens",
    "max_tool_calls",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "user",
    "usage",
];

const NEVER_NULL: &[&str] = &[
    "id",
    "object",
    "created_at",
    "status",
    "background",
    "store",
    "model",
    "output",
    "parallel_tool_calls",
    "metadata",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "text",
    "truncation",
    "service_tier",
];
