//! The conversation as messages of this protocol: who speaks in turns, results first, nothing empty.
//!
//! Not here: what belongs to one message of the assistant, and which output to which call
//! ([`interlingua_adapter_kit::transcript`]).

use interlingua_adapter_kit::transcript::{AssistantTurn, Entry, PairedCall, Part, Transcript, TranscriptPart};
use interlingua_adapter_kit::wire_names::{ToolNames, WireIds};
use interlingua_core::model::{Content, Message, MessageType, ToolOutput};
use interlingua_core::{ContentKind, Extra, Json, Losses, opaque};
use serde::Serialize;
use serde_json::json;

use super::blocks;
use crate::connect::options::{McpHistory, SystemMessages, UnsignedThinking, UpstreamOptions};

/// The field under which arguments go that are no JSON object: the protocol has no other place for them.
const ARGUMENTS: &str = "_arguments";
/// Stands in front of a conversation that begins with the assistant, which many servers refuse.
const BEFORE: &str = "…";

/// A message of the request.
#[derive(Debug, Serialize)]
pub(super) struct ApiMessage {
    role: &'static str,
    content: Vec<Json>,
}

/// The blocks of one uninterrupted turn of the assistant.
#[derive(Debug, Default)]
struct Blocks {
    said: Vec<Json>,
    /// Calls of the client's tools, behind all that was said.
    calls: Vec<Json>,
    /// Their results, in front of what the user says next.
    results: Vec<Json>,
}

/// Writes the conversation.
pub(super) struct Writer<'a> {
    pub(super) options: &'a UpstreamOptions,
    /// The author's name of opaque values that may go to this agent.
    pub(super) origin: &'a str,
    pub(super) names: &'a mut ToolNames,
    pub(super) losses: &'a mut Losses,
    pub(super) ids: WireIds,
    /// The blocks of the instructions.
    pub(super) system: Vec<Json>,
    pub(super) messages: Vec<ApiMessage>,
}

impl Writer<'_> {
    pub(super) fn write(&mut self, transcript: &Transcript<'_>) {
        transcript.note_losses(self.losses);
        let last = transcript.passages.len().saturating_sub(1);
        for (place, passage) in transcript.passages.iter().enumerate() {
            match passage {
                TranscriptPart::System(entry) => self.system(*entry),
                TranscriptPart::User(entry) => {
                    let content = blocks::of_user(&entry.content, self.losses);
                    self.push("user", content);
                }
                TranscriptPart::Decision(entry) => {
                    self.losses.changed(ContentKind::Approval, "sent as text: the protocol has no approvals");
                    let words = transcript.in_words(*entry);
                    self.push("user", words.iter().filter_map(|words| blocks::text(words)).collect());
                }
                TranscriptPart::Assistant(stretch) => self.assistant(stretch, transcript, place == last),
            }
        }

        if self.messages.first().is_none_or(|first| first.role != "user") {
            let content = blocks::text(BEFORE).into_iter().collect();
            self.messages.insert(0, ApiMessage { role: "user", content });
        }
        self.trim_last();
    }

    /// Blocks of one side. Messages of one side in a row are one.
    fn push(&mut self, role: &'static str, content: Vec<Json>) {
        if content.is_empty() {
            return;
        }
        match self.messages.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(content),
            None => self.messages.push(ApiMessage { role, content }),
        }
    }

    fn system(&mut self, entry: Entry<'_>) {
        let content = blocks::texts(&entry.content, self.losses);
        if self.messages.is_empty() {
            self.system.extend(content);
            return;
        }
        match self.options.system_messages {
            SystemMessages::Front => {
                self.losses.changed(ContentKind::Instructions, "moved in front of the conversation");
                self.system.extend(content);
            }
            SystemMessages::Inline => self.push("system", content),
            SystemMessages::User => {
                self.losses.changed(ContentKind::Instructions, "sent as words of the user");
                self.push("user", content);
            }
        }
    }

    /// `is_last`: no message follows, so that the server continues this one.
    fn assistant(&mut self, stretch: &AssistantTurn<'_>, transcript: &Transcript<'_>, is_last: bool) {
        let mut blocks = Blocks::default();
        let mut says_anything = false;
        for part in &stretch.parts {
            match part {
                Part::Reasoning(entry) => blocks.said.extend(self.thought(*entry)),
                Part::Said(entry) => {
                    let said = self.message_blocks(*entry);
                    says_anything |= !said.is_empty();
                    blocks.said.extend(said);
                }
                Part::Asked(entry) => {
                    self.losses.changed(ContentKind::Approval, "sent as text: the protocol has no approvals");
                    blocks.said.extend(transcript.in_words(*entry).iter().filter_map(|words| blocks::text(words)));
                    says_anything = true;
                }
                Part::Call(call) => {
                    says_anything |= call.output.is_some() || is_last;
                    self.call(call, is_last, &mut blocks);
                }
            }
        }

        // Servers refuse a message that holds nothing but thoughts.
        if says_anything {
            blocks.said.append(&mut blocks.calls);
            self.push("assistant", blocks.said);
            self.push("user", blocks.results);
        }
    }

    /// A thought, if this agent may get it back.
    fn thought(&mut self, entry: Entry<'_>) -> Option<Json> {
        let text = entry.text();
        let metadata = metadata(&entry);
        let word = |name: &str| metadata.get(name).and_then(Json::decode::<String>).filter(|word| !word.is_empty());
        if opaque::of_message_may_return(&entry, self.origin) {
            if let Some(data) = word("redacted") {
                return Some(Json::from_serialize(&json!({ "type": "redacted_thinking", "data": data })));
            }
            if let Some(signature) = word("signature") {
                return Some(thinking(&text, &signature));
            }
        } else if word("redacted").or_else(|| word("signature")).is_some() {
            self.losses.lost(ContentKind::Opaque, "made by another agent");
        }

        if self.options.unsigned_thinking == UnsignedThinking::Send && !text.is_empty() {
            return Some(thinking(&text, ""));
        }
        self.losses.lost(ContentKind::History, "earlier thoughts without a signature of this agent are not sent");
        None
    }

    fn message_blocks(&mut self, entry: Entry<'_>) -> Vec<Json> {
        // A block of the server's own that this version has no name for.
        if matches!(entry.kind, MessageType::Other(_))
            && is_own(&entry, self.origin)
            && let Some(block) = entry.content.iter().find_map(Content::as_data)
        {
            return vec![block.clone()];
        }
        blocks::texts(&entry.content, self.losses)
    }

    fn call(&mut self, pair: &PairedCall<'_>, is_last: bool, blocks: &mut Blocks) {
        let Some((answer, output)) = &pair.output else {
            // The server paused while its tool ran.
            match own_item(&pair.entry, self.origin).filter(|_| is_last) {
                Some(item) => blocks.said.push(item),
                None => self.losses.lost(ContentKind::AgentCall, "a call without an output is not sent"),
            }
            return;
        };
        let is_mcp = pair.entry.kind == MessageType::McpCall;
        let keeps = !is_mcp || self.options.mcp_history == McpHistory::Keep;
        if keeps && let (Some(call), Some(output)) = (own_item(&pair.entry, self.origin), own_item(answer, self.origin))
        {
            // What follows such a call was said after it.
            blocks.said.append(&mut blocks.calls);
            blocks.said.extend([call, output]);
            return;
        }

        let id = self.ids.to_wire(&pair.call.call_id);
        let input = self.input(&pair.call.arguments);
        let is_error = answer.has_failed_output();
        if is_mcp && self.options.mcp_history == McpHistory::Keep {
            let server = pair.call.server_label.as_deref().unwrap_or_default();
            blocks.said.append(&mut blocks.calls);
            blocks.said.push(mcp_use(&id, &pair.call.name, server, &input));
            blocks.said.push(mcp_result(&id, output, is_error));
            return;
        }

        if pair.entry.kind != MessageType::FunctionCall {
            self.losses.changed(ContentKind::AgentCall, "sent as a call of a tool of the client");
        }
        let mut block = Extra::new();
        block.push("type", Json::from_serialize("tool_use"));
        block.push("id", Json::from_serialize(&id));
        block.push("name", Json::from_serialize(&self.names.to_wire(&pair.call.name)));
        block.push("input", input);
        blocks.calls.push(Json::from_serialize(&block));

        let mut result = Extra::new();
        result.push("type", Json::from_serialize("tool_result"));
        result.push("tool_use_id", Json::from_serialize(&id));
        if let Some(content) = blocks::result(&output.output, answer, self.losses) {
            result.push("content", content);
        }
        if is_error {
            result.push("is_error", Json::from_serialize(&true));
        }
        blocks.results.push(Json::from_serialize(&result));
    }

    /// Arguments as an object. Others are wrapped.
    fn input(&mut self, arguments: &str) -> Json {
        match Json::parse(arguments.trim()).filter(Json::is_object) {
            Some(input) => input,
            None if arguments.trim().is_empty() => Json::from_serialize(&json!({})),
            None => {
                self.losses.changed(ContentKind::ClientCall, "arguments that are no JSON object are wrapped in one");
                Json::from_serialize(&json!({ ARGUMENTS: arguments }))
            }
        }
    }

    /// Servers refuse white space at the end of an answer that they continue.
    fn trim_last(&mut self) {
        #[derive(serde::Deserialize)]
        struct Text {
            #[serde(rename = "type")]
            kind: String,
            text: String,
        }

        let Some(last) = self.messages.last_mut().filter(|last| last.role == "assistant") else { return };
        let Some(block) = last.content.last_mut() else { return };
        if let Some(said) = block.decode::<Text>().filter(|said| said.kind == "text") {
            *block = Json::from_serialize(&json!({ "type": "text", "text": said.text.trim_end() }));
        }
    }
}

fn metadata(message: &Message) -> Extra {
    message.metadata.as_ref().and_then(Json::decode).unwrap_or_default()
}

/// True for a message that this agent made.
fn is_own(message: &Message, origin: &str) -> bool {
    let author = metadata(message).get(opaque::ORIGIN).and_then(Json::decode::<String>);
    author.is_some_and(|author| author == origin)
}

/// The server's own block of a message.
pub(super) fn own_item(message: &Message, origin: &str) -> Option<Json> {
    is_own(message, origin).then(|| metadata(message).get("item").cloned()).flatten()
}

fn thinking(text: &str, signature: &str) -> Json {
    Json::from_serialize(&json!({ "type": "thinking", "thinking": text, "signature": signature }))
}

fn mcp_use(id: &str, name: &str, server: &str, input: &Json) -> Json {
    let mut block = Extra::new();
    block.push("type", Json::from_serialize("mcp_tool_use"));
    block.push("id", Json::from_serialize(id));
    block.push("name", Json::from_serialize(name));
    block.push("server_name", Json::from_serialize(server));
    block.push("input", input.clone());
    Json::from_serialize(&block)
}

fn mcp_result(id: &str, output: &ToolOutput, is_error: bool) -> Json {
    Json::from_serialize(&json!({
        "type": "mcp_tool_result",
        "tool_use_id": id,
        "is_error": is_error,
        "content": [{ "type": "text", "text": output.output }],
    }))
}
