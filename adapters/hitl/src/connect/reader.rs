//! Reads an answer: the messages of this turn, and how it ended.

use std::borrow::Cow;

use interlingua_core::agent_event::{
    AgentError, AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, MessageEvent,
};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role, ToolOutput};
use interlingua_core::model_error::garbage;
use interlingua_core::{End, Fault, Json};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::asks;
use super::state::SessionState;
use super::wire::{AgentResponse, Message, ToolCall};

/// Reads an answer and emits all of it. `state` learns what the next turn has to know.
///
/// # Errors
/// If it has no status that the service knows, and those of the sink.
pub(super) fn read(
    response: &AgentResponse<'_>,
    body: &[u8],
    state: &mut SessionState,
    sink: &mut dyn EventSink,
) -> Result<(), Fault> {
    let messages = response.messages().filter(|_| is_known(&response.status)).ok_or_else(|| garbage(body))?;
    if let Some(session) = response.session_id.as_ref().filter(|id| !id.is_empty() && id.len() <= 512) {
        state.session_id = Some(session.clone());
    }
    state.timestamp = response.timestamp.or(state.timestamp);

    // The whole conversation comes each time: new is what follows the last query.
    let own = messages.iter().rposition(|message| message.kind == "human").map_or(0, |place| place + 1);
    let own = &messages[own..];
    // An agent that only reports an error has not begun.
    if response.status != "error" || own.len() > state.shown {
        sink.emit(&AgentEvent::started())?;
    }
    let mut writer = Writer { sink, count: state.shown };
    for message in own.iter().skip(state.shown) {
        writer.message(message)?;
    }

    match response.status.as_str() {
        "interrupted" => {
            state.shown = own.len().max(state.shown);
            let session = state.session_id.as_deref().unwrap_or_default();
            let id = format!("{session}:{}", response.timestamp.unwrap_or_default());
            let data = response.interrupt_data.unwrap_or(RawValue::NULL);
            asks::emit(&id, session, data, sink)?;
            sink.emit(&AgentEvent::completed())
        }
        "error" => {
            state.shown = 0;
            let message = response.message.as_deref().unwrap_or("the agent failed");
            sink.emit(&AgentEvent::Error(AgentError::named("", message)))
        }
        _ => {
            state.shown = 0;
            sink.emit(&AgentEvent::completed())
        }
    }
}

fn is_known(status: &str) -> bool {
    matches!(status, "completed" | "interrupted" | "error")
}

struct Writer<'s> {
    sink: &'s mut dyn EventSink,
    /// Messages of this turn so far: their ids.
    count: usize,
}

impl Writer<'_> {
    fn message(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        self.count += 1;
        match message.kind.as_str() {
            "ai" | "AIMessageChunk" => self.answer(message),
            "tool" => self.output(message),
            // Messages that the agent did not write: system messages and message types of extensions.
            _ => self.sink.emit(&AgentEvent::Ignored),
        }
    }

    fn answer(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Kwargs {
            reasoning_content: Option<String>,
        }
        let kwargs = message.additional_kwargs.and_then(|raw| serde_json::from_str::<Kwargs>(raw.get()).ok());
        let reasoning = kwargs.and_then(|kwargs| kwargs.reasoning_content).filter(|text| !text.is_empty());
        let number = self.count;
        if let Some(reasoning) = reasoning {
            let value = ContentValue::Text(Cow::Owned(reasoning));
            asks::whole(&format!("reasoning-{number}"), MessageType::Reasoning, value, self.sink)?;
        }
        let id = format!("text-{number}");
        let contents: Vec<ContentEvent<'_>> = contents(message.content)
            .into_iter()
            .zip(0..)
            .map(|(value, index)| ContentEvent::new(&id, ContentUpdate::Final, value).at(index))
            .collect();
        if !contents.is_empty() {
            self.emit(&id, MessageType::Message, contents)?;
        }
        let calls = message.tool_calls.iter().flatten().chain(message.invalid_tool_calls.iter().flatten());
        for (call, place) in calls.zip(0..) {
            self.call(call, &format!("call-{number}-{place}"))?;
        }
        Ok(())
    }

    fn call(&mut self, call: &ToolCall<'_>, message: &str) -> Result<(), Fault> {
        let arguments = call.args.map_or(Cow::Borrowed("{}"), text_of);
        let part = CallPart {
            call_id: call.id.as_deref().filter(|id| !id.is_empty()).unwrap_or(message).into(),
            name: call.name.as_deref().unwrap_or_default().into(),
            arguments,
            server_label: None,
        };
        let value = ContentValue::Call(part);
        self.emit(message, MessageType::PluginCall, vec![ContentEvent::new(message, ContentUpdate::Final, value).at(0)])
    }

    fn output(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let output = ToolOutput {
            call_id: message.tool_call_id.clone().unwrap_or_default(),
            name: message.name.clone().filter(|name| !name.is_empty()),
            output: message.content.map(|content| text_of(content).into_owned()).unwrap_or_default(),
        };
        let id = format!("output-{}", self.count);
        let failed = message.status.as_deref() == Some("error");
        self.sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&id)),
            kind: Some(MessageType::PluginCallOutput),
            role: Some(Role::Tool),
            end: Some(if failed { End::Failed } else { End::Completed }),
            contents: vec![
                ContentEvent::new(&id, ContentUpdate::Final, ContentValue::OwnedData(Json::from_serialize(&output)))
                    .at(0),
            ],
            ..MessageEvent::default()
        }))
    }

    fn emit(&mut self, id: &str, kind: MessageType, contents: Vec<ContentEvent<'_>>) -> Result<(), Fault> {
        self.sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(id)),
            kind: Some(kind),
            role: Some(Role::Assistant),
            end: Some(End::Completed),
            contents,
            ..MessageEvent::default()
        }))
    }
}

/// The contents of an `ai` message: a text, or a list of parts.
fn contents(content: Option<&RawValue>) -> Vec<ContentValue<'_>> {
    #[derive(Deserialize)]
    struct Part {
        text: Option<String>,
        image_url: Option<Image>,
    }
    #[derive(Deserialize)]
    struct Image {
        url: String,
    }
    let Some(raw) = content.filter(|raw| raw.get() != "null") else { return Vec::new() };
    if !raw.get().starts_with('[') {
        let text = text_of(raw);
        return if text.is_empty() { Vec::new() } else { vec![ContentValue::Text(text)] };
    }
    let parts: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let value = |part: &RawValue| {
        if part.get().starts_with('"') {
            return ContentValue::Text(Cow::Owned(text_of(part).into_owned()));
        }
        match serde_json::from_str::<Part>(part.get()) {
            Ok(Part { text: Some(text), .. }) => ContentValue::Text(Cow::Owned(text)),
            Ok(Part { image_url: Some(image), .. }) => ContentValue::Image(Some(Cow::Owned(image.url))),
            _ => ContentValue::OwnedData(Json::from_raw(part)),
        }
    };
    parts.into_iter().map(value).collect()
}

/// A string as it is, anything else as its JSON.
fn text_of(raw: &RawValue) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Plain<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Plain<'_>>(raw.get()).map_or(Cow::Borrowed(raw.get()), |text| text.0)
}
