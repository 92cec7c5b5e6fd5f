//! A client of CloudBase AG-Kit: it joins texts, matches results with calls, and runs the calls that have none at the
//! end.

use interlingua_core::loss::ContentKind as K;
use interlingua_core_testkit::scenario::{ClientAct, Item, Media};
use serde_json::{Value, json};

use crate::frames::{Frames, list, text};
use crate::{End, Open, Request, ScriptedClient, ShownTurn, Talk};

/// See the module.
#[derive(Debug)]
pub(crate) struct AgKit;

impl ScriptedClient for AgKit {
    fn protocol(&self) -> &'static str {
        "ag-kit"
    }

    fn route(&self) -> &'static str {
        "/kit/{agent}"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // There are no parameters of the model in a request, and no mark of a failure.
        !matches!(
            act,
            ClientAct::Temperature | ClientAct::Attach(Media::Data(_)) | ClientAct::Fail(..) | ClientAct::Picture(..)
        )
    }

    fn answers_alone(&self, act: &ClientAct) -> bool {
        // A request answers one interrupt, and any number of calls.
        act.answers().is_some() && !matches!(act, ClientAct::Output(..))
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let mut body = json!({ "conversationId": talk.session });
        let (mut messages, mut content) = (Vec::new(), Vec::new());
        for act in acts {
            match act {
                ClientAct::Say(_) => content.push(json!({ "type": "text", "text": talk.words(acts) })),
                ClientAct::Attach(media) => content.push(part(*media)),
                ClientAct::Declare(tool) => {
                    let parameters: Value = serde_json::from_str(tool.parameters).expect("a schema");
                    body["tools"] =
                        json!([{ "name": tool.name, "description": tool.description, "parameters": parameters }]);
                }
                ClientAct::Instruct(words) => messages.push(json!({ "role": "system", "content": words })),
                ClientAct::Output(item, output) => {
                    messages.push(json!({ "role": "tool", "toolCallId": talk.open(*item).id, "content": output }));
                }
                ClientAct::Remember | ClientAct::Temperature => {}
                answer => {
                    let item = &talk.open(answer.answers().expect("an answer")).id;
                    body["resume"] = json!({ "interruptId": item, "payload": payload(answer) });
                }
            }
        }
        if !content.is_empty() {
            messages.push(json!({ "role": "user", "content": content }));
        }
        if !messages.is_empty() {
            body["messages"] = json!(messages);
        }
        Request::post(format!("/kit/{}/send-message", talk.agent), &body)
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        if status != 200 {
            let error: Value = serde_json::from_str(body).expect("an error is JSON");
            let code = text(&error["error"], "code").to_owned();
            return ShownTurn { end: Some(End::Refused(status)), code, ..ShownTurn::default() };
        }
        let mut frames = Frames::split(body);
        assert!(frames.ends_with("[DONE]"), "the stream ends with [DONE]: {body}");
        assert!(frames.events.iter().all(|(name, _)| name.is_empty()), "events have no names");

        let mut reader = Reader::default();
        for frame in frames.json() {
            reader.frame(&frame);
        }
        reader.end(talk)
    }
}

fn part(media: Media) -> Value {
    let source = |kind: &str, url: &str| json!({ "type": kind, "source": { "type": "url", "value": url } });
    match media {
        Media::Image(url) => source("image", url),
        Media::Video(url) => source("video", url),
        Media::File(url, _) => source("document", url),
        Media::Audio(data) => {
            json!({ "type": "audio", "source": { "type": "data", "value": data, "mimeType": "audio/wav" } })
        }
        Media::Data(_) => panic!("no part for data"),
    }
}

fn payload(act: &ClientAct) -> Value {
    match act {
        ClientAct::Decide(_, decision) => json!({ "decision": decision.as_str() }),
        ClientAct::Edit(_, arguments) => {
            json!({ "decision": "edit", "args": serde_json::from_str::<Value>(arguments).expect("JSON") })
        }
        ClientAct::Respond(_, words) => json!({ "decision": "respond", "text": words }),
        ClientAct::Answer(_, value) => serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
        ClientAct::LoggedIn(_) => json!({ "decision": "accept" }),
        _ => panic!("no answer: {act:?}"),
    }
}

struct Call {
    id: String,
    tool: String,
    arguments: String,
    is_ended: bool,
    has_result: bool,
}

#[derive(Default)]
struct Reader {
    text: String,
    items: Vec<Item>,
    calls: Vec<Call>,
    asked: Option<Open>,
    error: Option<String>,
}

impl Reader {
    fn call(&mut self, frame: &Value) -> &mut Call {
        let id = text(frame, "toolCallId");
        self.calls.iter_mut().find(|call| call.id == id).unwrap_or_else(|| panic!("no call {id:?}: {frame}"))
    }

    fn frame(&mut self, frame: &Value) {
        assert!(self.asked.is_none() && self.error.is_none(), "nothing follows an interrupt or an error: {frame}");
        match text(frame, "type") {
            "text" => self.text.push_str(text(frame, "content")),
            "reasoning" => self.items.push(Item::new(K::Reasoning, text(frame, "content"))),
            "tool-call-start" => {
                let id = text(frame, "toolCallId").to_owned();
                assert!(self.calls.iter().all(|call| call.id != id), "a call begins twice: {frame}");
                let tool = text(frame, "toolCallName").to_owned();
                self.calls.push(Call { id, tool, arguments: String::new(), is_ended: false, has_result: false });
            }
            "tool-call-args" => {
                let delta = text(frame, "delta").to_owned();
                let call = self.call(frame);
                assert!(!call.is_ended, "arguments after the end: {frame}");
                call.arguments.push_str(&delta);
            }
            "tool-call-end" => self.call(frame).is_ended = true,
            "tool-result" => {
                let call = self.call(frame);
                assert!(call.is_ended && !call.has_result, "a result out of order: {frame}");
                call.has_result = true;
                let result = text(frame, "result");
                if !result.is_empty() {
                    self.items.push(Item::new(K::AgentOutput, result));
                }
            }
            "interrupt" => self.interrupt(frame),
            "error" => self.error = Some(text(frame, "error").to_owned()),
            other => panic!("an event of type {other:?}"),
        }
    }

    fn interrupt(&mut self, frame: &Value) {
        self.asked = Some(Open { id: text(frame, "id").to_owned(), what: "interrupt".to_owned() });
        let payload = &frame["payload"];
        let request = &payload["action_request"];
        if let Some(url) = payload["url"].as_str() {
            self.items.push(Item::new(K::Login, url));
        } else if payload["interrupt_type"] == "input" {
            // The payload of an agent behind the human-in-the-loop service.
            self.items.push(Item::new(K::Question, text(payload, "description")));
            let schema = Some(&payload["response_schema"]).filter(|schema| schema.is_object());
            self.items.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
        } else if let Some(action) = list(payload, "action_requests").next() {
            // The payload of LangGraph's review of actions.
            self.items.push(Item::call(K::Approval, text(action, "name"), &action["args"].to_string()));
        } else if request.is_object() {
            self.items.push(Item::call(K::Approval, text(request, "action"), &request["args"].to_string()));
        } else if payload["type"] == "tool_call" {
            // The call as AgentScope asks about it.
            self.items.push(Item::call(K::Approval, text(payload, "name"), text(payload, "input")));
        } else if let Some(words) = payload.as_str() {
            self.items.push(Item::new(K::Question, words));
        } else {
            self.items.push(Item::new(K::Question, text(payload, "message")));
            let schema = Some(&payload["response_schema"]).filter(|schema| schema.is_object());
            self.items.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
        }
    }

    fn end(mut self, talk: &mut Talk) -> ShownTurn {
        talk.open.clear();
        let is_over = self.asked.is_none() && self.error.is_none();
        for call in &self.calls {
            assert!(call.is_ended, "a call does not end");
            let is_open = is_over && !call.has_result;
            let kind = if is_open { K::ClientCall } else { K::AgentCall };
            self.items.push(Item::call(kind, &call.tool, &call.arguments));
            if is_open {
                talk.open.push(Open { id: call.id.clone(), what: "call".to_owned() });
            }
        }
        talk.open.extend(self.asked);
        if !self.text.is_empty() {
            self.items.push(Item::new(K::Text, self.text));
        }
        let end = if self.error.is_some() { End::Failed } else { End::Completed };
        ShownTurn { items: self.items, end: Some(end), code: String::new() }
    }
}
