//! The input of a run in this protocol: the new messages, or the whole conversation.
//!
//! Not here: parts of messages ([`super::parts`]), and answers to questions ([`super::answers`]).

use std::collections::HashSet;

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_adapter_kit::links;
use interlingua_adapter_kit::transcript::{
    AssistantTurn, Entry, OpenCalls, PairedCall, Part, Transcript, TranscriptPart,
};
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{AgentRequest, Message, ToolCall};
use interlingua_core::{Extra, Json, opaque};
use serde_json::json;

use super::answers::Answers;
use super::ids::key;
use super::options::{ReasoningInput, UpstreamOptions};
use super::parts::{plain_text, tool, tool_name, user_content};

/// The input of a run.
pub(super) struct Input {
    pub(super) body: Json,
    /// The ids of all messages in it.
    pub(super) ids: HashSet<String>,
    /// Ids of calls whose outputs are new.
    pub(super) outputs: HashSet<String>,
    /// Names of the declared tools.
    pub(super) tools: HashSet<String>,
}

/// Writes the input of one turn.
struct Writer<'a> {
    turn: &'a TurnRequest<'a>,
    options: &'a UpstreamOptions,
    origin: &'a str,
    call_ids: &'a CallIds,
    losses: &'a mut Losses,
    /// Each message with the place in the request that it comes from.
    written: Vec<(usize, Json)>,
    ids: HashSet<String>,
}

impl Input {
    /// The input of a turn.
    pub(super) fn new(
        turn: &TurnRequest<'_>,
        options: &UpstreamOptions,
        origin: &str,
        answers: &Answers,
        call_ids: &CallIds,
        losses: &mut Losses,
    ) -> Self {
        let request = turn.request;
        let mut writer = Writer { turn, options, origin, call_ids, losses, written: Vec::new(), ids: HashSet::new() };
        writer.messages(answers);
        let Writer { mut written, ids, losses, .. } = writer;
        written.sort_by_key(|(place, _)| *place);
        let messages: Vec<Json> = written.into_iter().map(|(_, message)| message).collect();

        let declared: Vec<Json> = request.tools.iter().flatten().filter_map(tool).collect();
        for _ in declared.len()..request.tools.as_ref().map_or(0, Vec::len) {
            losses.lost(ContentKind::ToolDeclaration, "the protocol declares functions alone");
        }
        note_losses(request, losses);

        let run = request.id.as_deref().unwrap_or("run");
        let run = if turn.turn == 0 { run.to_owned() } else { format!("{run}-{}", turn.turn) };
        let mut body = Extra::new();
        body.push("threadId", Json::from_serialize(request.session_id.as_deref().unwrap_or(run.as_str())));
        body.push("runId", Json::from_serialize(&run));
        if let Some(version) = &options.protocol_version {
            body.push("protocolVersion", Json::from_serialize(version));
        }
        if let Some(parent) = request.extra.get("parent_run_id").filter(|parent| !parent.is_null()) {
            body.push("parentRunId", parent.clone());
        }
        // Servers before 1.0 demand these fields.
        body.push("state", own(request, "state").unwrap_or_else(empty_object));
        body.push("messages", Json::from_serialize(&messages));
        body.push("tools", Json::from_serialize(&declared));
        body.push("context", own(request, "context").unwrap_or_else(|| Json::from_serialize(&json!([]))));
        body.push("forwardedProps", forwarded_props(request, answers));
        if !answers.resume.is_empty() {
            body.push("resume", Json::from_serialize(&answers.resume));
        }

        let outputs = turn.new_messages().flat_map(|(_, message)| message.outputs()).map(|output| output.call_id);
        let outputs = outputs.chain(answers.outputs.iter().map(|(id, _)| id.clone()));
        Self {
            body: Json::from_serialize(&body),
            ids,
            outputs: outputs.map(|id| key(own_id(turn, call_ids, &id))).collect(),
            tools: declared.iter().filter_map(tool_name).collect(),
        }
    }
}

/// The agent's id of a call. One that is sent the whole conversation knows the call by its id there.
pub(super) fn own_id<'i>(turn: &TurnRequest<'_>, call_ids: &'i CallIds, id: &'i str) -> &'i str {
    if turn.history.is_empty() { call_ids.own(id) } else { id }
}

/// A field that a client of this protocol sent beside its messages.
fn own(request: &AgentRequest, name: &str) -> Option<Json> {
    request.extra.get(name).filter(|value| !value.is_null()).cloned()
}

fn empty_object() -> Json {
    Json::from_serialize(&json!({}))
}

/// The values of the application, and the answer to a question of the older form.
fn forwarded_props(request: &AgentRequest, answers: &Answers) -> Json {
    let given = own(request, "forwarded_props");
    let Some(resume) = &answers.command else { return given.unwrap_or_else(empty_object) };
    let mut props: Extra = given.and_then(|props| props.decode()).unwrap_or_default();
    let mut command: Extra = props.get("command").and_then(Json::decode).unwrap_or_default();
    command.set("resume", resume.clone());
    props.set("command", Json::from_serialize(&command));
    Json::from_serialize(&props)
}

/// Notes fields of the request that the protocol has no place for.
fn note_losses(request: &AgentRequest, losses: &mut Losses) {
    let sampling = &request.sampling;
    let numbers = [sampling.temperature, sampling.top_p, sampling.frequency_penalty, sampling.presence_penalty];
    let counts = [sampling.max_tokens, sampling.n, sampling.seed];
    if numbers.iter().any(Option::is_some) || counts.iter().any(Option::is_some) || sampling.stop.is_some() {
        losses.lost(ContentKind::Sampling, "the protocol has no parameters of the model");
    }
    if request.extra.get("tool_choice").is_some_and(|choice| !choice.is_null()) {
        losses.lost(ContentKind::ToolChoice, "the protocol does not choose among tools");
    }
    if own(request, "text").and_then(|text| text.decode::<Extra>()).is_some_and(|text| text.get("format").is_some()) {
        losses.lost(ContentKind::OutputFormat, "the protocol has no form of the answer");
    }
}

impl Writer<'_> {
    fn messages(&mut self, answers: &Answers) {
        let input = &self.turn.request.input;
        let transcript = Transcript::read(input, self.turn.answered, OpenCalls::KeptIfAsked);
        let mut paired: HashSet<usize> = HashSet::new();
        for passage in &transcript.passages {
            match passage {
                TranscriptPart::System(entry) => self.write_text_message("system", *entry),
                TranscriptPart::User(entry) => self.user(*entry),
                TranscriptPart::Assistant(stretch) => {
                    paired.extend(stretch.calls().filter_map(|call| Some(call.output.as_ref()?.0.place)));
                    self.stretch(stretch);
                }
                // Decisions are part of `resume`, or belong to calls that have run.
                TranscriptPart::Decision(_) => {}
            }
        }

        for _ in 0..transcript.open_calls {
            self.losses.lost(ContentKind::History, "calls without an output are left out");
        }
        self.unpaired_outputs(&paired);
        let end = input.len();
        for (call, output) in &answers.outputs {
            let call = own_id(self.turn, self.call_ids, call);
            let id = format!("{call}-answer");
            let message = json!({ "id": id, "role": "tool", "toolCallId": call, "content": output });
            self.written.push((end, Json::from_serialize(&message)));
        }
    }

    /// Outputs of calls that the agent remembers.
    fn unpaired_outputs(&mut self, paired: &HashSet<usize>) {
        let input = &self.turn.request.input;
        for (place, message) in input.iter().enumerate().filter(|(_, message)| message.kind.is_output()) {
            if paired.contains(&place) {
                continue;
            }
            if !self.turn.history.is_empty() {
                self.losses.lost(ContentKind::History, "outputs without their call are left out");
                continue;
            }
            for output in message.outputs() {
                let call = own_id(self.turn, self.call_ids, &output.call_id);
                self.tool_output(Entry { place, message }, call, &output.output, place);
            }
        }
    }

    /// The agent's id of a message if it made it, else the one that the message has in every turn.
    fn id(&self, entry: Entry<'_>) -> String {
        let metadata: Option<Extra> = entry.metadata.as_ref().and_then(Json::decode);
        let given = metadata.filter(|metadata| {
            metadata.get(opaque::ORIGIN).and_then(Json::decode::<String>).as_deref() == Some(self.origin)
        });
        let given = given.and_then(|metadata| metadata.get("id")?.decode::<String>());
        let own = || self.turn.message_ids.get(entry.place).cloned().or_else(|| entry.message.id.clone());
        given.or_else(own).unwrap_or_else(|| {
            let run = self.turn.request.id.as_deref().unwrap_or("run");
            format!("{run}-{}-{}", self.turn.turn, entry.place)
        })
    }

    /// A value that only the agent can read, if it made it.
    fn sealed(&mut self, message: &Message) -> Option<Json> {
        let metadata: Extra = message.metadata.as_ref()?.decode()?;
        let value = metadata.get("encrypted_content")?;
        if opaque::of_message_may_return(message, self.origin) {
            return Some(value.clone());
        }
        self.losses.lost(ContentKind::Opaque, "made by another agent");
        None
    }

    fn write(&mut self, place: usize, id: String, role: &str, fields: impl IntoIterator<Item = (&'static str, Json)>) {
        let mut message = Extra::new();
        message.push("id", Json::from_serialize(&id));
        message.push("role", Json::from_serialize(role));
        for (name, value) in fields {
            message.push(name, value);
        }
        self.ids.insert(key(&id));
        self.written.push((place, Json::from_serialize(&message)));
    }

    fn write_text_message(&mut self, role: &'static str, entry: Entry<'_>) {
        let text = plain_text(&entry.content, self.losses);
        self.write(entry.place, self.id(entry), role, [("content", Json::from_serialize(&text))]);
    }

    fn user(&mut self, entry: Entry<'_>) {
        let content = user_content(&entry.content, self.options.parts, self.losses);
        self.write(entry.place, self.id(entry), "user", [("content", content)]);
    }

    /// One uninterrupted turn of the agent: its texts, then one message with all its calls, then their outputs.
    fn stretch(&mut self, stretch: &AssistantTurn<'_>) {
        let first_call = stretch.parts.iter().position(|part| matches!(part, Part::Call(_)));
        let said = |part: &Part<'_>| if let Part::Said(entry) = part { Some(entry.place) } else { None };
        // The message with the calls contains the text before and between them, because outputs must follow it
        // directly.
        let with_calls: HashSet<usize> = match first_call {
            Some(first) => {
                let before = stretch.parts[..first].iter().filter_map(said).next_back();
                before.into_iter().chain(stretch.parts[first..].iter().filter_map(said)).collect()
            }
            None => HashSet::new(),
        };

        let mut texts = Vec::new();
        let mut message: Option<Entry<'_>> = None;
        for part in &stretch.parts {
            match part {
                Part::Said(entry) if with_calls.contains(&entry.place) => {
                    texts.push(plain_text(&entry.content, self.losses));
                    message.get_or_insert(*entry);
                }
                Part::Said(entry) => self.write_text_message("assistant", *entry),
                Part::Reasoning(entry) => self.reasoning(*entry),
                Part::Call(call) => {
                    message.get_or_insert(call.entry);
                }
                // It is not part of the conversation as the agent has it.
                Part::Asked(_) => {}
            }
        }
        if let Some(message) = message.filter(|_| first_call.is_some()) {
            self.calls(message, &texts.join("\n\n"), stretch);
        }
    }

    fn calls(&mut self, message: Entry<'_>, text: &str, stretch: &AssistantTurn<'_>) {
        let calls: Vec<&PairedCall<'_>> = stretch.calls().collect();
        let written: Vec<Json> = calls.iter().map(|call| self.call(&call.call, call.entry)).collect();
        let content = (!text.is_empty()).then(|| ("content", Json::from_serialize(text)));
        let fields = content.into_iter().chain([("toolCalls", Json::from_serialize(&written))]);
        let place = message.place;
        self.write(place, self.id(message), "assistant", fields);
        for call in calls {
            if let Some((entry, output)) = &call.output {
                self.tool_output(*entry, &output.call_id, &output.output, place);
            }
        }
    }

    fn call(&mut self, call: &ToolCall, entry: Entry<'_>) -> Json {
        let mut written = Extra::new();
        written.push("id", Json::from_serialize(&call.call_id));
        written.push("type", Json::from_serialize("function"));
        let function = json!({ "name": call.name, "arguments": call.arguments });
        written.push("function", Json::from_serialize(&function));
        if let Some(value) = self.sealed(entry.message) {
            written.push("encryptedValue", value);
        }
        Json::from_serialize(&written)
    }

    /// `place`: where the message with the call stands, behind which the output belongs.
    fn tool_output(&mut self, entry: Entry<'_>, call: &str, output: &str, place: usize) {
        let output = links::output_as_text(output, entry.message, "an output is a text and nothing else", self.losses);
        let sealed = self.sealed(entry.message).map(|value| ("encryptedValue", value));
        let fields = [("toolCallId", Json::from_serialize(call)), ("content", Json::from_serialize(&output))];
        let error = entry.has_failed_output().then(|| ("error", Json::from_serialize(&output)));
        self.write(place, self.id(entry), "tool", fields.into_iter().chain(error).chain(sealed));
    }

    fn reasoning(&mut self, entry: Entry<'_>) {
        if self.options.reasoning_input == ReasoningInput::Drop {
            return;
        }
        let text = plain_text(&entry.content, self.losses);
        let sealed = self.sealed(entry.message).map(|value| ("encryptedValue", value));
        let fields = std::iter::once(("content", Json::from_serialize(&text))).chain(sealed);
        self.write(entry.place, self.id(entry), "reasoning", fields);
    }
}
