//! Clients of Anthropic Messages: a coding agent that streams, names its session, sends the whole conversation with
//! each request, returns blocks unchanged, and declares functions for questions; and two others.
//!
//! Here: requests, and the stored part of an answer. `answer` assembles a message, `shown` reads its content. Not here:
//! the refusals of a route, whose errors are only read.

mod answer;
mod shown;

use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{ClientAct, Media};
use serde_json::{Value, json};

use crate::{Request, ScriptedClient, ShownTurn, Talk};

/// The functions by which a client can be asked (the defaults of a route).
const REQUEST_APPROVAL: &str = "request_approval";
const REQUEST_INPUT: &str = "request_input";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnthropicMessages {
    /// It streams, names its session, and receives questions as calls of functions.
    CodingAgent,
    /// It reads whole answers, names no session, and receives questions as text.
    Plain,
    /// It continues threads: later requests contain only new messages (the beta `message-threads-2026-08-12`).
    Threads,
}

impl AnthropicMessages {
    /// Whether it receives questions as calls. Otherwise as text.
    fn has_functions(self) -> bool {
        self != Self::Plain
    }

    fn streams(self) -> bool {
        self != Self::Plain
    }
}

impl ScriptedClient for AnthropicMessages {
    fn protocol(&self) -> &'static str {
        "anthropic-messages"
    }

    fn route(&self) -> &'static str {
        "/anthropic"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // There are blocks for images and documents alone, and a word is no place for arguments or a result.
        match act {
            ClientAct::Attach(media) => matches!(media, Media::Image(_) | Media::File(..)),
            ClientAct::Edit(..) | ClientAct::Respond(..) => self.has_functions(),
            _ => true,
        }
    }

    fn answers_alone(&self, act: &ClientAct) -> bool {
        let is_asked = matches!(act, ClientAct::Decide(..) | ClientAct::Answer(..) | ClientAct::LoggedIn(_));
        !self.has_functions() && is_asked
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let mut body = json!({
            "model": talk.agent, "max_tokens": 32_000, "stream": self.streams(),
        });
        if acts.contains(&ClientAct::Temperature) {
            body["temperature"] = json!(0.5);
        } else {
            // The original takes no other temperature than 1 beside it.
            body["thinking"] = json!({ "type": "adaptive" });
        }
        let instructions = acts.iter().filter_map(|act| match act {
            ClientAct::Instruct(words) => Some(json!({ "type": "text", "text": words })),
            _ => None,
        });
        let instructions: Vec<Value> = instructions.collect();
        if !instructions.is_empty() {
            body["system"] = json!(instructions);
        }

        let mut new_tools: Vec<Value> = acts.iter().filter_map(tool).collect();
        if self.has_functions() && talk.declared.is_empty() {
            new_tools.extend(own_functions());
        }
        talk.declared.extend(new_tools.iter().cloned());

        let content = self.content(acts, talk);
        let message = json!({ "role": "user", "content": content });
        talk.said.push(message.clone());
        let is_continued = *self == Self::Threads && !talk.last.is_empty();
        let (messages, tools) =
            if is_continued { (vec![message], new_tools) } else { (talk.said.clone(), talk.declared.clone()) };
        body["messages"] = json!(messages);
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }

        let headers = [("anthropic-version", "2023-06-01"), ("x-api-key", "none")];
        let request = Request::post("/anthropic/v1/messages".to_owned(), &body);
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        match self {
            Self::CodingAgent => request.header("x-claude-code-session-id", talk.session.clone()),
            Self::Plain => request,
            Self::Threads => {
                body["thread"] = if is_continued {
                    json!({ "type": "continue", "previous_message_id": talk.last })
                } else {
                    json!({ "type": "create" })
                };
                let request = Request { body: body.to_string(), ..request };
                request.header("anthropic-beta", "message-threads-2026-08-12")
            }
        }
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        talk.open.clear();
        talk.last.clear();
        if status != 200 {
            let error: Value = serde_json::from_str(body).expect("an error is JSON");
            let code = answer::check_error(&error, Some(status));
            return ShownTurn { end: Some(crate::End::Refused(status)), code, ..ShownTurn::default() };
        }
        let answer = if self.streams() { answer::Answer::of_stream(body) } else { answer::Answer::of_whole(body) };
        answer.check(talk);
        answer.id().clone_into(&mut talk.last);
        let kept = answer.kept();
        if !kept.is_empty() {
            talk.said.push(json!({ "role": "assistant", "content": kept }));
        }
        shown::shown(&answer, talk)
    }
}

impl AnthropicMessages {
    /// The blocks of a user: results in front, as the original wants them.
    fn content(self, acts: &[ClientAct], talk: &Talk) -> Vec<Value> {
        let (mut results, mut others) = (Vec::new(), Vec::new());
        for act in acts {
            match act {
                ClientAct::Say(_) => others.push(text_block(&talk.words(acts).expect("words"))),
                ClientAct::Attach(media) => others.push(media_block(*media)),
                ClientAct::Output(item, output) => results.push(result(talk, *item, output)),
                ClientAct::Picture(item, output, url) => {
                    let mut result = result(talk, *item, output);
                    result["content"] = json!([text_block(output), media_block(Media::Image(url))]);
                    results.push(result);
                }
                ClientAct::Fail(item, output) => {
                    let mut result = result(talk, *item, output);
                    result["is_error"] = json!(true);
                    results.push(result);
                }
                ClientAct::Declare(_) | ClientAct::Instruct(_) | ClientAct::Temperature | ClientAct::Remember => {}
                answer if !self.has_functions() => others.push(text_block(word(answer))),
                answer => {
                    let item = answer.answers().expect("an answer is about an item");
                    results.push(result(talk, item, &output(answer)));
                }
            }
        }
        results.extend(others);
        results
    }
}

/// A tool that the client runs.
fn tool(act: &ClientAct) -> Option<Value> {
    let ClientAct::Declare(tool) = act else { return None };
    let schema: Value = serde_json::from_str(tool.parameters).expect("a schema");
    Some(json!({ "name": tool.name, "description": tool.description, "input_schema": schema }))
}

/// The functions by which the gateway asks.
fn own_functions() -> Vec<Value> {
    let function =
        |name, description| json!({ "name": name, "description": description, "input_schema": { "type": "object" } });
    vec![
        function(REQUEST_APPROVAL, "Asks the person whether a call may run."),
        function(REQUEST_INPUT, "Asks the person a question."),
    ]
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn media_block(media: Media) -> Value {
    match media {
        Media::Image(url) => json!({ "type": "image", "source": { "type": "url", "url": url } }),
        Media::File(url, name) => {
            json!({ "type": "document", "title": name, "source": { "type": "url", "url": url } })
        }
        Media::Audio(_) | Media::Video(_) | Media::Data(_) => panic!("no block for {media:?}"),
    }
}

fn result(talk: &Talk, item: usize, output: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": talk.open(item).id, "content": output })
}

/// The output of a function that asked.
fn output(act: &ClientAct) -> String {
    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    match act {
        ClientAct::Decide(_, decision) => json!({ "decision": decision.as_str() }).to_string(),
        ClientAct::Edit(_, arguments) => json!({ "decision": "edit", "args": json(arguments) }).to_string(),
        ClientAct::Respond(_, text) => json!({ "decision": "respond", "text": text }).to_string(),
        ClientAct::Answer(_, words) => (*words).to_owned(),
        ClientAct::LoggedIn(_) => "done".to_owned(),
        other => panic!("no answer: {other:?}"),
    }
}

/// The text of a person who answers a question.
fn word(act: &ClientAct) -> &'static str {
    match act {
        ClientAct::Decide(_, Decision::Accept) => "approve",
        ClientAct::Decide(_, Decision::Reject) => "reject",
        ClientAct::Decide(_, Decision::Cancel) => "cancel",
        ClientAct::Answer(_, words) => words,
        ClientAct::LoggedIn(_) => "done",
        other => panic!("no word for {other:?}"),
    }
}
