//! Outputs of calls: texts, parts of several kinds, and repetitions.

use std::borrow::Cow;

use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue, MessageEvent};
use interlingua_core::loss::ContentKind;
use interlingua_core::model::{File, MessageType, Role};
use interlingua_core::{End, Extra, Fault, Json};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Call, Calls};
use crate::connect::context::{Context, HeldEnd, to_metadata};
use crate::connect::frame::{Fields, entries, text, text_or_json};
use crate::connect::ids::key;

#[derive(Serialize)]
struct OutputData<'a> {
    call_id: &'a str,
    name: &'a str,
    output: &'a str,
}

impl Calls {
    /// The only call without an output. Of several, the only one of this name.
    fn only_open(&self, name: &str) -> Option<usize> {
        let only = |fits: &dyn Fn(&Call) -> bool| {
            let mut open = (0..self.all.len()).filter(|place| !self.all[*place].is_answered && fits(&self.all[*place]));
            open.next().filter(|_| open.next().is_none())
        };
        only(&|_| true).or_else(|| only(&|call| !name.is_empty() && call.name == name))
    }

    /// The output of a call.
    pub(in crate::connect) fn result(&mut self, event: &Fields<'_>, context: &mut Context<'_>) -> Result<(), Fault> {
        let id = key(&event.text("toolCallId").unwrap_or_default());
        let known = self.by_key.get(&id).copied();
        if let Some(place) = known {
            self.settle_repetition(place, context)?;
        }
        let known = self.by_key.get(&id).copied();
        let Some(place) = known.or_else(|| self.only_open(&event.text("toolCallName").unwrap_or_default())) else {
            // No client could say which call it answers.
            context.shared.losses.lost(ContentKind::AgentOutput, "its id is that of no call");
            return context.sink.emit(&AgentEvent::Ignored);
        };
        if known.is_none() {
            let how = "its id is that of no call: it counts as the output of the one open call";
            context.shared.losses.changed(ContentKind::AgentOutput, how);
        }
        if std::mem::replace(&mut self.all[place].is_answered, true) {
            return context.sink.emit(&AgentEvent::Ignored);
        }

        // A snapshot may contain the missing part of its arguments.
        let waits = self.has_state && matches!(&self.all[place].arguments, super::Arguments::Held(_));
        if !waits {
            self.close(place, None, context)?;
        }

        let call = &self.all[place];
        let content = event.get("content").or_else(|| event.get("result"));
        let (output, media) = content.map(|content| read_output(content, context)).unwrap_or_default();
        let kind = if call.is_declared { MessageType::FunctionCallOutput } else { MessageType::PluginCallOutput };
        let error = event.text("error");
        let end = if error.is_some() { End::Failed } else { End::Completed };

        let entity = key(&event.text("messageId").unwrap_or_default());
        // Ids of results repeat those of their calls; a history does not name them.
        let mut metadata = Extra::new();
        let wanted = if entity.is_empty() { format!("{}-output", call.id) } else { entity.clone() };
        let message = context.begin_output(&wanted, &mut metadata);
        let output = match &error {
            Some(error) if output.is_empty() => error,
            _ => &output,
        };
        let data = OutputData { call_id: &call.id, name: &call.name, output };
        let value = ContentValue::OwnedData(Json::from_serialize(&data));
        context.sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&message)),
            kind: Some(kind),
            role: Some(Role::Tool),
            metadata: to_metadata(&metadata),
            ..MessageEvent::default()
        }))?;
        // The output is the last content: a reader of it knows all contents and need not wait for the message's end.
        for (value, index) in media.into_iter().chain(std::iter::once(value)).zip(0..) {
            let content = ContentEvent::new(&message, ContentUpdate::Final, value).at(index);
            context.sink.emit(&AgentEvent::Content(content))?;
        }
        context.hold(HeldEnd::End { entity, id: message, metadata, end, is_output: true })
    }
}

/// The text of an output, and the media in it.
fn read_output<'a>(content: &'a RawValue, context: &mut Context<'_>) -> (Cow<'a, str>, Vec<ContentValue<'a>>) {
    if !content.get().starts_with('[') {
        return (text_or_json(content), Vec::new());
    }

    let parts: Vec<(&RawValue, Fields<'_>)> = entries(content)
        .into_iter()
        .filter_map(|part| Some((part, Fields::parse(part.get())?)))
        .filter(|(_, fields)| fields.text("type").is_some())
        .collect();
    if parts.is_empty() {
        // A list of anything else is what the tool returned.
        return (Cow::Borrowed(content.get()), Vec::new());
    }

    let mut said: Vec<Cow<'a, str>> = Vec::new();
    let mut media = Vec::new();
    for (raw, part) in parts {
        match part.text("type").as_deref() {
            Some("text") => said.extend(part.get("text").and_then(text)),
            Some(kind) => match read_media(kind, &part) {
                Some(value) => media.push(value),
                None => {
                    context.shared.losses.changed(ContentKind::AgentOutput, "parts of unknown types are shown as JSON");
                    said.push(Cow::Borrowed(raw.get()));
                }
            },
            None => {}
        }
    }
    (Cow::Owned(said.join("\n")), media)
}

/// A part with a medium, as a content.
fn read_media<'a>(kind: &str, part: &Fields<'a>) -> Option<ContentValue<'a>> {
    let source = part.object("source")?;
    let value = source.text("value")?;
    let media_type = source.text("mimeType");
    let name = part.text("filename").or_else(|| part.object("metadata")?.text("filename")).map(Cow::into_owned);
    let url = match source.text("type").as_deref() {
        Some("url") => value,
        Some("data") => {
            let media_type = media_type.as_deref().unwrap_or("application/octet-stream");
            Cow::Owned(format!("data:{media_type};base64,{value}"))
        }
        Some("file") => {
            return Some(ContentValue::File(File { id: Some(value.into_owned()), name, ..File::default() }));
        }
        _ => return None,
    };

    Some(match kind {
        "image" => ContentValue::Image(Some(url)),
        "video" => ContentValue::Video(Some(url)),
        "audio" => ContentValue::Audio { data: Some(url), format: media_type },
        "document" if url.starts_with("data:") => {
            ContentValue::File(File { data: Some(url.into_owned()), name, ..File::default() })
        }
        "document" => ContentValue::File(File { url: Some(url.into_owned()), name, ..File::default() }),
        _ => return None,
    })
}
