//! A client of OpenAI Responses that streams, continues by the previous response's id, and reads the items as they are
//! done.

use interlingua_core::loss::ContentKind as K;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{ClientAct, Item, Media};
use serde_json::{Value, json};

use crate::frames::{Frames, list, text};
use crate::{Background, End, Open, Request, ScriptedClient, ShownTurn, Talk};

/// See the module.
#[derive(Debug)]
pub(crate) struct Responses;

impl ScriptedClient for Responses {
    fn protocol(&self) -> &'static str {
        "responses"
    }

    fn route(&self) -> &'static str {
        "/v1"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // There is no part for data, no text in place of a call's result, no mark of a failure, no new arguments, and
        // no way to withdraw.
        !matches!(
            act,
            ClientAct::Attach(Media::Data(_) | Media::Video(_))
                | ClientAct::Edit(..)
                | ClientAct::Respond(..)
                | ClientAct::Fail(..)
                | ClientAct::Decide(_, Decision::Cancel)
        )
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let mut body = json!({ "model": talk.agent, "stream": true });
        if !talk.last.is_empty() {
            body["previous_response_id"] = json!(talk.last);
        }
        let (mut input, mut content) = (Vec::new(), Vec::new());
        for act in acts {
            match act {
                ClientAct::Say(_) => content.push(json!({ "type": "input_text", "text": talk.words(acts) })),
                ClientAct::Attach(media) => content.push(part(*media)),
                ClientAct::Declare(tool) => {
                    let parameters: Value = serde_json::from_str(tool.parameters).expect("a schema");
                    body["tools"] = json!([{
                        "type": "function", "name": tool.name, "description": tool.description,
                        "parameters": parameters, "strict": false,
                    }]);
                }
                ClientAct::Instruct(words) => body["instructions"] = json!(words),
                ClientAct::Temperature => body["temperature"] = json!(0.5),
                ClientAct::Remember => {}
                ClientAct::Decide(item, decision) => input.push(json!({
                    "type": "mcp_approval_response", "approval_request_id": talk.open(*item).id,
                    "approve": *decision == Decision::Accept,
                })),
                ClientAct::Picture(item, output, url) => {
                    let parts = json!([
                        { "type": "input_text", "text": output },
                        { "type": "input_image", "image_url": url, "detail": "auto" },
                    ]);
                    input.push(json!({
                        "type": "function_call_output", "call_id": talk.open(*item).id, "output": parts,
                    }));
                }
                ClientAct::Output(item, output) | ClientAct::Answer(item, output) => {
                    input.push(output_item(&talk.open(*item).id, output));
                }
                ClientAct::LoggedIn(item) => input.push(output_item(&talk.open(*item).id, "done")),
                ClientAct::Edit(..) | ClientAct::Respond(..) | ClientAct::Fail(..) => panic!("no word for {act:?}"),
            }
        }
        if !content.is_empty() {
            input.push(json!({ "type": "message", "role": "user", "content": content }));
        }
        body["input"] = json!(input);
        Request::post("/v1/responses".to_owned(), &body)
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        if status != 200 {
            let error: Value = serde_json::from_str(body).expect("an error is JSON");
            let code = error["error"]["code"].as_str().unwrap_or_default().to_owned();
            assert!(!text(&error["error"], "message").is_empty(), "an error has a message: {body}");
            return ShownTurn { end: Some(End::Refused(status)), code, ..ShownTurn::default() };
        }
        let mut frames = Frames::split(body);
        assert!(frames.ends_with("[DONE]"), "the stream ends with [DONE]");
        let events = check(&frames);
        read_response(&events.last().expect("events")["response"], talk)
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }
}

impl Background for Responses {
    fn begin(&self, acts: &[ClientAct], talk: &Talk) -> Request {
        let request = self.request(acts, &mut talk.clone());
        let mut body: Value = serde_json::from_str(&request.body).expect("JSON");
        (body["stream"], body["background"]) = (json!(false), json!(true));
        Request { body: body.to_string(), ..request }
    }

    fn began(&self, body: &str, talk: &mut Talk) {
        let response: Value = serde_json::from_str(body).expect("JSON");
        assert!(matches!(text(&response, "status"), "queued" | "in_progress"), "{body}");
        assert_eq!(response["background"], true, "{body}");
        text(&response, "id").clone_into(&mut talk.last);
    }

    fn poll(&self, talk: &Talk) -> Option<Request> {
        Some(Request::get(format!("/v1/responses/{}", talk.last)))
    }

    fn polled(&self, body: &str, talk: &mut Talk) -> Option<ShownTurn> {
        let response: Value = serde_json::from_str(body).expect("JSON");
        let is_over = !matches!(text(&response, "status"), "queued" | "in_progress");
        is_over.then(|| read_response(&response, talk))
    }

    fn follow(&self, read: &str, talk: &Talk) -> Option<Request> {
        let last = Frames::split(read).events.iter().rev().find_map(|(_, data)| {
            let event: Value = serde_json::from_str(data).ok()?;
            event["sequence_number"].as_u64()
        });
        let after = last.map_or_else(String::new, |last| format!("&starting_after={last}"));
        Some(Request::get(format!("/v1/responses/{}?stream=true{after}", talk.last)))
    }
}

/// A response that has ended.
fn read_response(response: &Value, talk: &mut Talk) -> ShownTurn {
    text(response, "id").clone_into(&mut talk.last);

    let mut shown = ShownTurn::default();
    talk.open.clear();
    for item in list(response, "output") {
        read_item(item, &mut shown.items, &mut talk.open);
    }
    let usage = &response["usage"];
    if usage.is_object() {
        let count = |name: &str| usage[name].as_u64().expect("a count");
        shown.items.push(Item::usage(count("input_tokens"), count("output_tokens")));
    }
    shown.items.extend(response["incomplete_details"]["reason"].as_str().map(|why| Item::new(K::EndReason, why)));
    shown.end = Some(match text(response, "status") {
        "completed" => End::Completed,
        "incomplete" => End::Incomplete,
        "failed" => End::Failed,
        "cancelled" => End::Canceled,
        other => panic!("a response ends as {other:?}"),
    });
    response["error"]["code"].as_str().unwrap_or_default().clone_into(&mut shown.code);
    shown
}

fn output_item(call: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call, "output": output })
}

fn part(media: Media) -> Value {
    match media {
        Media::Image(url) => json!({ "type": "input_image", "image_url": url, "detail": "auto" }),
        Media::Audio(data) => json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } }),
        Media::File(url, name) => json!({ "type": "input_file", "file_url": url, "filename": name }),
        Media::Video(_) | Media::Data(_) => panic!("no part for {media:?}"),
    }
}

/// Checks the order of the events, and that deltas, items and the last response agree.
fn check(frames: &Frames) -> Vec<Value> {
    let events = frames.json();
    for (number, ((name, _), event)) in frames.events.iter().zip(&events).enumerate() {
        assert_eq!((name.as_str(), &event["sequence_number"]), (text(event, "type"), &json!(number)), "{event}");
    }
    assert_eq!(text(&events[0], "type"), "response.created");

    let last = events.last().expect("events");
    let ends = ["response.completed", "response.failed", "response.incomplete"];
    let ended: Vec<&Value> = events.iter().filter(|event| ends.contains(&text(event, "type"))).collect();
    assert_eq!(ended, [last], "there is one end, and it is last");

    let of_type = |name: &'static str| events.iter().filter(move |event| event["type"] == name);
    let mut done: Vec<&Value> = of_type("response.output_item.done").collect();
    done.sort_by_key(|event| event["output_index"].as_u64());
    let items: Vec<&Value> = done.iter().map(|event| &event["item"]).collect();
    assert_eq!(items, list(&last["response"], "output").collect::<Vec<_>>(), "the end repeats the items");
    assert_eq!(of_type("response.output_item.added").count(), done.len(), "each item is added and done");

    for event in of_type("response.output_text.done") {
        let deltas = of_type("response.output_text.delta")
            .filter(|delta| delta["item_id"] == event["item_id"] && delta["content_index"] == event["content_index"]);
        assert_eq!(
            deltas.map(|delta| text(delta, "delta")).collect::<String>(),
            text(event, "text"),
            "deltas make the text"
        );
    }
    events
}

fn read_item(item: &Value, items: &mut Vec<Item>, open: &mut Vec<Open>) {
    let mut wait = |what: &str, id: &str| open.push(Open { id: id.to_owned(), what: what.to_owned() });
    match text(item, "type") {
        "message" => list(item, "content").for_each(|part| read_part(part, items)),
        "reasoning" => {
            let texts = list(item, "summary").map(|part| text(part, "text"));
            items.push(Item::new(K::Reasoning, texts.collect::<String>()));
        }
        "function_call" if item["name"] == "request_input" => {
            wait("question", text(item, "call_id"));
            ask(text(item, "arguments"), items);
        }
        "function_call" if item["status"] == "completed" => {
            wait("call", text(item, "call_id"));
            items.push(Item::call(K::ClientCall, text(item, "name"), text(item, "arguments")));
        }
        "function_call" => items.push(Item::call(K::ClientCall, text(item, "name"), text(item, "arguments"))),
        "mcp_call" => {
            items.push(Item::call(K::AgentCall, text(item, "name"), text(item, "arguments")));
            let output = item["output"].as_str().or(item["error"]["content"][0]["text"].as_str());
            items.extend(output.map(|output| Item::new(K::AgentOutput, output)));
        }
        "mcp_approval_request" => {
            wait("approval", text(item, "id"));
            items.push(Item::call(K::Approval, text(item, "name"), text(item, "arguments")));
        }
        "image_generation_call" => items.push(Item::new(K::ImageOut, text(item, "result"))),
        other => panic!("an item of type {other:?}: {item}"),
    }
}

fn read_part(part: &Value, items: &mut Vec<Item>) {
    match text(part, "type") {
        "output_text" => {
            let annotations = list(part, "annotations").map(|note| {
                Item::new(
                    K::Annotation,
                    note["url"].as_str().or(note["url_citation"]["url"].as_str()).expect("a citation has a URL"),
                )
            });
            items.push(Item::new(K::Text, text(part, "text")));
            items.extend(annotations);
        }
        "refusal" => items.push(Item::new(K::Refusal, text(part, "refusal"))),
        other => panic!("a part of type {other:?}"),
    }
}

/// A question of the agent as a call. Its words were shown as a message before it.
fn ask(arguments: &str, items: &mut Vec<Item>) {
    let asked: Value = serde_json::from_str(arguments).expect("arguments are JSON");
    let words = asked["message"].as_str().unwrap_or_default();
    if items.last().is_some_and(|item| item.kind == K::Text && item.value == words) {
        items.pop();
    }
    match asked["payload"]["url"].as_str() {
        Some(url) => items.push(Item::new(K::Login, url)),
        None => items.push(Item::new(K::Question, words)),
    }
    let schema = Some(&asked["response_schema"]).filter(|schema| schema.is_object());
    items.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
}
