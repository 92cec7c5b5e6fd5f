//! A client of AG-UI as front ends are built on the official one: it sends the whole conversation and its state with
//! each run, answers interrupts in `resume`, and takes a stream that broke off up again.
//!
//! Not here: the order of events (`order`), and what they mean (`reader`).

mod order;
mod reader;

use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{ClientAct, Media};
use serde_json::{Value, json};

use self::order::Order;
use self::reader::Reader;
use crate::frames::{Frames, text};
use crate::{Background, End, Open, Request, ScriptedClient, ShownTurn, Talk};

/// See the module.
#[derive(Debug)]
pub(crate) struct AgUi {
    /// It declares version 1.0. Older ones declare nothing, and fail at what that version added.
    pub(crate) is_v1: bool,
    /// The first segment of its route's path.
    pub(crate) route: &'static str,
}

impl Default for AgUi {
    fn default() -> Self {
        Self { is_v1: true, route: "ag-ui" }
    }
}

impl ScriptedClient for AgUi {
    fn protocol(&self) -> &'static str {
        "ag-ui"
    }

    fn route(&self) -> &'static str {
        "/ag-ui/{agent}"
    }

    fn route_settings(&self) -> &'static str {
        // And routes with other settings: runs that continue without their clients, and other authoritative histories.
        "[[routes]]\nprotocol = \"ag-ui\"\npath = \"/ag-ui-kept/{agent}\"\non_disconnect = \"detach\"\n\
         [[routes]]\nprotocol = \"ag-ui\"\npath = \"/ag-ui-delta/{agent}\"\n\
         options = { history = \"delta\", start = \"on_upstream\" }\n\
         [[routes]]\nprotocol = \"ag-ui\"\npath = \"/ag-ui-gateway/{agent}\"\noptions = { history = \"gateway\" }"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // There are no parameters of the model in an input, and no part for data.
        !matches!(act, ClientAct::Temperature | ClientAct::Attach(Media::Data(_)) | ClientAct::Picture(..))
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let turn = format!("{}-{}", talk.mark.play, talk.mark.turn);
        let (mut content, mut tools, mut resume) = (Vec::new(), Vec::new(), Vec::new());
        for act in acts {
            match act {
                ClientAct::Say(_) => content.push(json!({ "type": "text", "text": talk.words(acts) })),
                ClientAct::Attach(media) => content.push(part(*media)),
                ClientAct::Declare(tool) => {
                    let parameters: Value = serde_json::from_str(tool.parameters).expect("a schema");
                    tools.push(json!({ "name": tool.name, "description": tool.description, "parameters": parameters }));
                }
                ClientAct::Instruct(words) => {
                    talk.said.insert(0, json!({ "id": "instructions", "role": "system", "content": words }));
                }
                ClientAct::Output(item, output) => {
                    let call = talk.open(*item).id.clone();
                    let id = format!("output-of-{call}");
                    talk.said.push(json!({ "id": id, "role": "tool", "toolCallId": call, "content": output }));
                }
                ClientAct::Fail(item, error) => {
                    let call = talk.open(*item).id.clone();
                    let id = format!("output-of-{call}");
                    talk.said.push(
                        json!({ "id": id, "role": "tool", "toolCallId": call, "content": error, "error": error }),
                    );
                }
                ClientAct::Remember => {}
                ClientAct::Temperature => panic!("no word for {act:?}"),
                answer => resume.push(answered(answer, talk.open(answer.answers().expect("an answer")))),
            }
        }
        match content.as_slice() {
            [] => {}
            [only] if only["type"] == "text" => {
                talk.said.push(json!({ "id": format!("user-{turn}"), "role": "user", "content": only["text"] }));
            }
            _ => talk.said.push(json!({ "id": format!("user-{turn}"), "role": "user", "content": content })),
        }

        let mut input = json!({
            "threadId": talk.session, "runId": run_id(talk), "messages": talk.said, "state": state(talk),
            "tools": tools, "context": [], "forwardedProps": {},
        });
        if self.is_v1 {
            input["protocolVersion"] = json!("1.0");
        }
        if !resume.is_empty() {
            let interrupts = talk.open.iter().filter(|open| open.what != CALL).count();
            assert_eq!(resume.len(), interrupts, "every interrupt is answered, and once: {:?}", talk.open);
            input["resume"] = json!(resume);
        }
        Request::post(format!("/{}/{}", self.route, talk.agent), &input).header("accept", "text/event-stream")
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        if status != 200 {
            let error: Value = serde_json::from_str(body).expect("an error is JSON");
            assert!(!text(&error["error"], "message").is_empty(), "an error has a message: {body}");
            let code = text(&error["error"], "code").to_owned();
            return ShownTurn { end: Some(End::Refused(status)), code, ..ShownTurn::default() };
        }
        assert!(!body.contains('\r'), "lines end with a line feed alone: {body:?}");
        let frames = Frames::split(body);
        assert!(frames.events.iter().all(|(name, _)| name.is_empty()), "events have no names: {body}");

        let events = frames.json();
        let mut order = Order::after(&talk.said, self.is_v1);
        events.iter().for_each(|event| order.event(event));
        order.is_over();
        let declared = if self.is_v1 { json!("1.0") } else { Value::Null };
        let started = &events[0];
        assert_eq!(
            (&started["threadId"], &started["runId"], &started["protocolVersion"]),
            (&json!(talk.session), &json!(run_id(talk)), &declared),
            "a run is named as its client named it"
        );

        let mut reader = Reader::after(talk);
        events.iter().for_each(|event| reader.event(event));
        reader.end(events.last().expect("events"), talk)
    }
}

impl Background for AgUi {
    fn begin(&self, acts: &[ClientAct], talk: &Talk) -> Request {
        let request = self.request(acts, &mut talk.clone());
        Request { path: format!("/ag-ui-kept/{}", talk.agent), ..request }
    }

    fn is_answered(&self) -> bool {
        // A run is a stream. Its client leaves, and comes back.
        false
    }

    fn began(&self, body: &str, _: &mut Talk) {
        panic!("an answer to a client that left: {body}");
    }

    fn poll(&self, _: &Talk) -> Option<Request> {
        None
    }

    fn polled(&self, body: &str, _: &mut Talk) -> Option<ShownTurn> {
        panic!("an answer to no question: {body}");
    }

    fn follow(&self, read: &str, talk: &Talk) -> Option<Request> {
        let path = format!("/ag-ui-kept/{}?threadId={}&runId={}", talk.agent, talk.session, run_id(talk));
        let last = read.lines().rev().find_map(|line| line.strip_prefix("id: "));
        let request = Request::get(path).header("accept", "text/event-stream");
        Some(match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        })
    }
}

/// An open call of the client. For an interrupt, the value is the schema of its answer.
const CALL: &str = "call";

/// The client's name of the run of a turn.
fn run_id(talk: &Talk) -> String {
    format!("run-{}-{}", talk.mark.play, talk.mark.turn)
}

/// The state of the front end, which is an empty object before its agent has set it.
fn state(talk: &Talk) -> Value {
    if talk.state.is_null() { json!({}) } else { talk.state.clone() }
}

fn part(media: Media) -> Value {
    let url = |kind: &str, url: &str, mime: &str| json!({ "type": kind, "source": { "type": "url", "value": url, "mimeType": mime } });
    match media {
        Media::Image(at) => url("image", at, "image/png"),
        Media::Video(at) => url("video", at, "video/mp4"),
        Media::File(at, _) => url("document", at, "application/pdf"),
        Media::Audio(data) => {
            json!({ "type": "audio", "source": { "type": "data", "value": data, "mimeType": "audio/wav" } })
        }
        Media::Data(_) => panic!("no part for {media:?}"),
    }
}

/// An entry of `resume`.
fn answered(act: &ClientAct, open: &Open) -> Value {
    let schema: Value = serde_json::from_str(&open.what).unwrap_or_default();
    let payload = match act {
        ClientAct::Decide(_, Decision::Cancel) => return json!({ "interruptId": open.id, "status": "cancelled" }),
        ClientAct::Decide(_, Decision::Accept) | ClientAct::LoggedIn(_) => json!({ "approved": true }),
        ClientAct::Decide(_, Decision::Reject) => json!({ "approved": false }),
        ClientAct::Edit(_, arguments) => {
            assert!(schema["properties"]["editedArgs"].is_object(), "new arguments are not allowed: {schema}");
            let arguments: Value = serde_json::from_str(arguments).expect("arguments are JSON");
            json!({ "approved": true, "editedArgs": arguments })
        }
        ClientAct::Respond(_, words) => {
            let words_of = &schema["properties"]["decision"]["enum"];
            let is_offered = words_of.as_array().is_some_and(|words| words.contains(&json!("respond")));
            assert!(is_offered, "a text instead of a result is not allowed: {schema}");
            json!({ "decision": "respond", "text": words })
        }
        ClientAct::Answer(_, value) => serde_json::from_str(value).unwrap_or_else(|_| json!(value)),
        other => panic!("no answer: {other:?}"),
    };
    json!({ "interruptId": open.id, "status": "resolved", "payload": payload })
}
