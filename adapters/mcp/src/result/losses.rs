//! Content of an answer that a result does not show, or shows in another form (docs/protocols/mcp.md#lost).

use interlingua_adapter_kit::answer_parts::late_annotations;
use interlingua_core::End;
use interlingua_core::call::RunView;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Body, ContentType, MessageType};
use interlingua_core::run::{Message, Slot};

use crate::media::Source;
use crate::options::Reasoning;
use crate::result::blocks::is_answer;
use crate::result::content_media::Media;
use crate::result::{ResultContext, blocks, size};

const NO_ANNOTATIONS: &str = "results have no annotations";

/// Records the losses of a result. `has_progress`: the client gets progress notifications.
pub(crate) fn note(context: &ResultContext<'_>, runs: &[RunView<'_>], has_progress: bool, losses: &mut Losses) {
    let Some(first) = runs.first() else { return };
    for message in runs.iter().flat_map(|view| view.run().messages.iter()) {
        note_message(context, message, has_progress, losses);
    }
    if runs.iter().flat_map(|view| &view.run().turns).any(|turn| turn.end == Some(End::Incomplete)) {
        losses.lost(ContentKind::EndReason, "a result says that the answer was cut off, and not why");
    }
    if !context.resources {
        let mut answer = blocks::blocks(first.run().id, runs.iter().map(|view| view.run()));
        let max = if context.is_structured() { size::MAX_RESULT / 2 } else { size::MAX_RESULT };
        if size::shrink(&mut answer, max, first.run().id, false) {
            losses.lost(ContentKind::Text, "the answer is too large for a result");
        }
    }
}

fn note_message(context: &ResultContext<'_>, message: &Message, has_progress: bool, losses: &mut Losses) {
    use ContentKind as K;
    match &message.kind {
        MessageType::Reasoning if !has_progress => losses.lost(K::Reasoning, "the client asked for no progress"),
        MessageType::Reasoning if context.options.reasoning == Reasoning::Drop => {
            losses.lost(K::Reasoning, "hidden by the route's option reasoning");
        }
        MessageType::Reasoning => losses.changed(K::Reasoning, "sent as progress only"),
        MessageType::ProtocolEvent => losses.lost(K::ProtocolEvent, "events of another protocol"),
        MessageType::McpListTools => losses.lost(K::AgentCall, "lists of an agent's tools"),
        MessageType::A2uiResponse | MessageType::A2uiAction => losses.lost(K::DataOut, "user interfaces"),
        MessageType::FunctionCall | MessageType::FunctionCallOutput => {}
        kind if kind.is_call() || kind.is_output() => {
            let content = if kind.is_call() { K::AgentCall } else { K::AgentOutput };
            let has_steps = context.options.steps && context.is_structured();
            match (has_steps, has_progress) {
                (true, _) => {}
                (false, true) => losses.changed(content, "named in progress only"),
                (false, false) => losses.lost(content, "the client asked for no progress"),
            }
        }
        MessageType::Error if !has_progress => losses.lost(K::ErrorCode, "the client asked for no progress"),
        MessageType::Error => losses.changed(K::ErrorCode, "sent as progress only"),
        _ if is_answer(message) => {
            if !late_annotations(message).is_empty() {
                losses.lost(K::Annotation, NO_ANNOTATIONS);
            }
            message.slots.iter().for_each(|slot| note_content(context, slot, losses));
        }
        _ => {}
    }
}

fn note_content(context: &ResultContext<'_>, slot: &Slot, losses: &mut Losses) {
    use ContentKind as K;
    if slot.extra.get("annotations").is_some_and(|list| !interlingua_core::json::is_empty_value(list.text())) {
        losses.lost(K::Annotation, NO_ANNOTATIONS);
    }
    match &slot.kind {
        ContentType::Refusal => return losses.changed(K::Refusal, "shown as text, with a mark on the result"),
        ContentType::Data if !context.is_structured() => losses.changed(K::DataOut, "shown as text"),
        _ => {}
    }
    let Some(content) = &slot.value else { return };
    if let Some(Media { kind, source: Source::Other(_), .. }) = Media::of(content) {
        let kind = match kind {
            "image" => K::ImageOut,
            "audio" => K::AudioOut,
            "video" => K::VideoOut,
            _ => K::FileOut,
        };
        losses.lost(kind, "neither a link nor data");
    }
    match &content.body {
        Body::File(file) if file.data.is_none() && file.url.is_none() => {
            losses.lost(K::FileOut, "only the agent knows the id");
        }
        Body::Other(_) => losses.changed(K::DataOut, "contents of an unknown type are shown as JSON"),
        _ => {}
    }
}
