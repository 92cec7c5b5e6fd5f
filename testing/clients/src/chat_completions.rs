//! A client of OpenAI Chat Completions that streams, requests usage, sends the whole conversation with each request,
//! and answers questions in text; and one that reads whole answers.

use interlingua_core::loss::ContentKind as K;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{ClientAct, Item, Media};
use serde_json::{Value, json};

use crate::frames::{Frames, list, text};
use crate::{End, Open, Request, ScriptedClient, ShownTurn, Talk};

/// See the module.
#[derive(Debug)]
pub(crate) struct ChatCompletions {
    pub(crate) streams: bool,
}

impl ScriptedClient for ChatCompletions {
    fn protocol(&self) -> &'static str {
        "chat-completions"
    }

    fn route(&self) -> &'static str {
        "/v1"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // There is no part for data, no mark of a failure, and a word is no place for arguments or a result.
        !matches!(
            act,
            ClientAct::Attach(Media::Data(_))
                | ClientAct::Edit(..)
                | ClientAct::Respond(..)
                | ClientAct::Fail(..)
                | ClientAct::Picture(..)
        )
    }

    fn answers_alone(&self, act: &ClientAct) -> bool {
        matches!(act, ClientAct::Decide(..) | ClientAct::Answer(..) | ClientAct::LoggedIn(_))
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let mut body = json!({ "model": talk.agent });
        if self.streams {
            body["stream"] = json!(true);
            body["stream_options"] = json!({ "include_usage": true });
        }
        let mut content = Vec::new();
        for act in acts {
            match act {
                ClientAct::Say(_) => content.push(json!({ "type": "text", "text": talk.words(acts) })),
                ClientAct::Attach(media) => content.push(part(*media)),
                ClientAct::Declare(tool) => {
                    let parameters: Value = serde_json::from_str(tool.parameters).expect("a schema");
                    let function =
                        json!({ "name": tool.name, "description": tool.description, "parameters": parameters });
                    body["tools"] = json!([{ "type": "function", "function": function }]);
                }
                ClientAct::Instruct(words) => talk.said.insert(0, json!({ "role": "system", "content": words })),
                ClientAct::Temperature => body["temperature"] = json!(0.5),
                ClientAct::Remember => {}
                ClientAct::Decide(_, decision) => content.push(json!({
                    "type": "text",
                    "text": match decision {
                        Decision::Accept => "approve",
                        Decision::Reject => "reject",
                        Decision::Cancel => "cancel",
                        other => panic!("no word for {other:?}"),
                    },
                })),
                ClientAct::Output(item, output) => {
                    let id = talk.open(*item).id.clone();
                    talk.said.push(json!({ "role": "tool", "tool_call_id": id, "content": output }));
                }
                ClientAct::Answer(_, words) => content.push(json!({ "type": "text", "text": words })),
                ClientAct::LoggedIn(_) => content.push(json!({ "type": "text", "text": "done" })),
                ClientAct::Edit(..) | ClientAct::Respond(..) | ClientAct::Fail(..) | ClientAct::Picture(..) => {
                    panic!("no word for {act:?}")
                }
            }
        }
        if !content.is_empty() {
            talk.said.push(json!({ "role": "user", "content": content }));
        }
        body["messages"] = json!(talk.said);
        Request::post("/v1/chat/completions".to_owned(), &body)
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        talk.open.clear();
        if status != 200 {
            let error: Value = serde_json::from_str(body).expect("an error is JSON");
            let code = error["error"]["code"].as_str().unwrap_or_default().to_owned();
            assert!(!text(&error["error"], "message").is_empty(), "an error has a message: {body}");
            return ShownTurn { end: Some(End::Refused(status)), code, ..ShownTurn::default() };
        }
        let answer = if self.streams { Answer::of_stream(body) } else { Answer::of_whole(body) };
        talk.said.push(answer.message());
        answer.shown(talk)
    }
}

fn part(media: Media) -> Value {
    match media {
        Media::Image(url) => json!({ "type": "image_url", "image_url": { "url": url } }),
        Media::Audio(data) => json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } }),
        Media::Video(url) => json!({ "type": "video_url", "video_url": { "url": url } }),
        Media::File(url, name) => json!({ "type": "file", "file": { "file_data": url, "filename": name } }),
        Media::Data(_) => panic!("no part for {media:?}"),
    }
}

/// An answer as it is put together from its chunks.
#[derive(Debug, Default)]
struct Answer {
    content: String,
    refusal: String,
    reasoning: String,
    /// Id, name and arguments.
    calls: Vec<(String, String, String)>,
    citations: Vec<String>,
    images: Vec<String>,
    reason: String,
    usage: Value,
    error: Value,
}

impl Answer {
    fn of_stream(body: &str) -> Self {
        let mut frames = Frames::split(body);
        let is_done = frames.ends_with("[DONE]");
        let chunks = frames.json();
        let mut answer = Self::default();
        for (number, chunk) in chunks.iter().enumerate() {
            answer.chunk(number, chunk);
        }
        assert_eq!(is_done, answer.error.is_null(), "a stream ends with [DONE] or with an error: {body}");
        assert_eq!(is_done, !answer.reason.is_empty(), "an answer has one reason: {body}");
        answer
    }

    fn of_whole(body: &str) -> Self {
        let completion: Value = serde_json::from_str(body).expect("an answer is JSON");
        assert_eq!(text(&completion, "object"), "chat.completion");
        let choices: Vec<&Value> = list(&completion, "choices").collect();
        let [choice] = choices[..] else { panic!("one choice: {body}") };
        let message = &choice["message"];
        assert!(choice["index"] == 0 && message["role"] == "assistant", "{body}");
        assert!(message["content"].is_string() || message["content"].is_null(), "{body}");
        let mut answer = Self::default();
        answer.beside_calls(message);
        for call in list(message, "tool_calls") {
            let function = &call["function"];
            let call = [text(call, "id"), text(function, "name"), text(function, "arguments")].map(str::to_owned);
            answer.calls.push(call.into());
        }
        text(choice, "finish_reason").clone_into(&mut answer.reason);
        answer.usage = completion["usage"].clone();
        answer
    }

    fn chunk(&mut self, number: usize, chunk: &Value) {
        assert!(self.error.is_null(), "nothing follows an error: {chunk}");
        if !chunk["error"].is_null() {
            self.error = chunk["error"].clone();
            return;
        }
        assert_eq!(text(chunk, "object"), "chat.completion.chunk");
        let Some(choice) = list(chunk, "choices").next() else {
            assert!(!self.reason.is_empty() && chunk["usage"].is_object(), "usage comes last: {chunk}");
            self.usage = chunk["usage"].clone();
            return;
        };
        assert!(chunk["usage"].is_null() && choice["index"] == 0, "one choice, and no usage beside it: {chunk}");
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert!(self.reason.is_empty() && choice["delta"] == json!({}), "one reason, alone: {chunk}");
            reason.clone_into(&mut self.reason);
            return;
        }
        assert_eq!(choice["delta"]["role"].is_string(), number == 0, "the role stands in the first chunk: {chunk}");
        self.delta(&choice["delta"]);
    }

    fn delta(&mut self, delta: &Value) {
        self.beside_calls(delta);
        for call in list(delta, "tool_calls") {
            let index = usize::try_from(call["index"].as_u64().expect("an index")).expect("small");
            let function = &call["function"];
            if index == self.calls.len() {
                assert_eq!((text(call, "type"), text(function, "arguments")), ("function", ""));
                self.calls.push((text(call, "id").to_owned(), text(function, "name").to_owned(), String::new()));
            } else {
                assert!(index + 1 == self.calls.len() && call.get("id").is_none(), "calls do not mix: {call}");
                self.calls[index].2.push_str(text(function, "arguments"));
            }
        }
    }

    /// The content of a message without calls, or the content that a delta adds.
    fn beside_calls(&mut self, delta: &Value) {
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        self.content.push_str(piece("content"));
        self.refusal.push_str(piece("refusal"));
        self.reasoning.push_str(piece("reasoning_content"));
        let urls = |name: &str, inner: &str| {
            let urls = list(delta, name).map(|entry| text(&entry[inner], "url").to_owned());
            urls.collect::<Vec<_>>()
        };
        self.citations.extend(urls("annotations", "url_citation"));
        self.images.extend(urls("images", "image_url"));
    }

    /// The message that the client sends back.
    fn message(&self) -> Value {
        let call = |(id, name, arguments): &(String, String, String)| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        let mut message = json!({ "role": "assistant", "content": self.content });
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.iter().map(call).collect();
        }
        message
    }

    fn shown(self, talk: &mut Talk) -> ShownTurn {
        let mut items = Vec::new();
        if !self.reasoning.is_empty() {
            items.push(Item::new(K::Reasoning, self.reasoning));
        }
        if !self.refusal.is_empty() {
            items.push(Item::new(K::Refusal, self.refusal));
        }
        for line in content_items(&self.content, &mut items) {
            talk.open.push(line);
        }
        items.extend(self.citations.into_iter().map(|url| Item::new(K::Annotation, url)));
        items.extend(self.images.into_iter().map(|url| Item::new(K::ImageOut, url)));
        for (id, name, arguments) in self.calls {
            items.push(Item::call(K::ClientCall, &name, &arguments));
            talk.open.push(Open { id, what: "call".to_owned() });
        }
        if self.usage.is_object() {
            let count = |name: &str| self.usage[name].as_u64().expect("a count");
            items.push(Item::usage(count("prompt_tokens"), count("completion_tokens")));
        }
        let reason = match self.reason.as_str() {
            "length" => Some("max_output_tokens"),
            "content_filter" => Some("content_filter"),
            _ => None,
        };
        items.extend(reason.map(|reason| Item::new(K::EndReason, reason)));
        let end = match (self.reason.as_str(), self.error["code"].as_str()) {
            ("stop" | "tool_calls", None) => End::Completed,
            ("length" | "content_filter", None) => End::Incomplete,
            ("", Some("canceled")) => End::Canceled,
            ("", Some(_)) => End::Failed,
            other => panic!("an answer ends as {other:?}"),
        };
        let code = self.error["code"].as_str().unwrap_or_default().to_owned();
        ShownTurn { items, end: Some(end), code }
    }
}

/// The text, and a question at its end: lines whose last one is a marker.
fn content_items(content: &str, items: &mut Vec<Item>) -> Vec<Open> {
    let marker = content.lines().last().and_then(|line| line.strip_prefix('[')?.strip_suffix(']')?.split_once(' '));
    let Some((kind @ ("approval" | "question"), id)) = marker else {
        if !content.is_empty() {
            items.push(Item::new(K::Text, content));
        }
        return Vec::new();
    };
    let (before, asked) = content.rsplit_once("\n\n").unwrap_or(("", content));
    if !before.is_empty() {
        items.push(Item::new(K::Text, before));
    }
    let asked = asked.rsplit_once('\n').map_or(asked, |(asked, _)| asked);
    items.push(match (kind, asked.rsplit_once('\n')) {
        ("approval", _) => Item::new(K::Approval, asked),
        (_, Some((url, how))) if how.contains("logged in") => Item::new(K::Login, url),
        _ => Item::new(K::Question, asked),
    });
    vec![Open { id: id.to_owned(), what: kind.to_owned() }]
}
