//! A whole message: the answer itself, or a repetition of it behind its deltas, which adds only what is new.
//!
//! See `docs/protocols/chat-completions.md#choices-and-content`.

use std::borrow::Cow;

use interlingua_core::connector::EventSink;
use interlingua_core::lenient::List;
use interlingua_core::{ContentKind, Fault, Losses};

use super::call::Output;
use super::chunk::{CallPiece, ContentPart, Delta};
use super::reader::Reader;
use super::snapshot::{NewText, StreamedText};

impl Reader {
    /// Reads a message. `is_last`: the answer ends with it.
    pub(super) fn whole(
        &mut self,
        mut message: Delta<'_>,
        is_last: bool,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if !self.has_deltas && self.said.is_empty() && self.reasoned.is_empty() && self.calls.is_empty() {
            return self.delta(message, sink);
        }
        if !self.has_deltas {
            // Messages in place of deltas.
            message.content = self.new_content(message.content, |said, text, _| said.rest_of_message(text, is_last));
            return self.delta(message, sink);
        }

        message.content = self.new_content(message.content, |said, text, losses| rest(said, text, losses));
        for field in [&mut message.reasoning_content, &mut message.reasoning, &mut message.reasoning_text] {
            cut(field, &self.reasoned, &mut self.losses);
        }
        cut(&mut message.refusal, &self.refused, &mut self.losses);
        if !self.reasoned.is_empty() {
            message.thinking = List::default();
        }
        if self.details.has_come() {
            message.reasoning_details = None;
        }
        if self.blocks.has_come() {
            message.thinking_blocks = None;
        }
        if !self.audio.is_empty() {
            message.audio = None;
        }
        if self.annotations.has_come() {
            message.annotations = None;
        }
        if !self.executed.is_empty() {
            message.executed_tools = None;
        }
        let known = self.images;
        message.images = listed(message.images.into_iter().skip(known));

        let calls = std::mem::take(&mut message.tool_calls);
        let function = message.function_call.take();
        self.delta(message, sink)?;
        self.whole_calls(calls, function.map(|function| CallPiece { function, ..CallPiece::default() }), sink)
    }

    /// The parts of a content that are new.
    fn new_content<'a>(
        &mut self,
        content: List<ContentPart<'a>>,
        rest: impl for<'t> Fn(&StreamedText, &'t str, &mut Losses) -> &'t str,
    ) -> List<ContentPart<'a>> {
        let mut parts: Vec<ContentPart<'a>> = content.into_iter().collect();
        let is_text = |part: &ContentPart<'_>| part.text.is_some() && !part.is_reasoning;
        let whole: String = parts.iter().filter(|part| is_text(part)).filter_map(|part| part.text.as_deref()).collect();
        let mut repeated = whole.len() - rest(&self.said, &whole, &mut self.losses).len();
        let mut images = self.images;
        for part in &mut parts {
            if is_text(part)
                && let Some(text) = part.text.take()
            {
                let cut = repeated.min(text.len());
                repeated -= cut;
                part.text = text.get(cut..).filter(|rest| !rest.is_empty()).map(|rest| Cow::Owned(rest.to_owned()));
            } else if part.is_reasoning && !self.reasoned.is_empty() {
                part.text = None;
                part.thinking = List::default();
            }
            if part.image_url.is_some() && images > 0 {
                images -= 1;
                part.image_url = None;
            }
        }
        parts.retain(|part| part.text.is_some() || part.image_url.is_some() || part.thinking.first.is_some());
        listed(parts)
    }

    fn whole_calls(
        &mut self,
        calls: List<CallPiece<'_>>,
        function: Option<CallPiece<'_>>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if calls.first.is_none() && function.is_none() {
            return Ok(());
        }

        self.before_calls(sink)?;
        let Self { calls: all, ids, losses, held, .. } = self;
        let mut out = Output { ids, losses, held, sink };
        all.begin_chunk();
        for (place, piece) in calls.into_iter().chain(function).enumerate() {
            all.snapshot(place, &piece, &mut out)?;
        }
        Ok(())
    }
}

/// The new part of a whole text.
fn rest<'t>(streamed: &StreamedText, whole: &'t str, losses: &mut Losses) -> &'t str {
    match streamed.rest(whole) {
        NewText::New(rest) => rest,
        NewText::Other => {
            losses.lost(ContentKind::Text, "a whole text at the end contradicts the one that was streamed");
            ""
        }
    }
}

fn cut(field: &mut Option<Cow<'_, str>>, streamed: &StreamedText, losses: &mut Losses) {
    if let Some(whole) = field.take() {
        let rest = rest(streamed, &whole, losses);
        *field = (!rest.is_empty()).then(|| Cow::Owned(rest.to_owned()));
    }
}

fn listed<T>(entries: impl IntoIterator<Item = T>) -> List<T> {
    let mut entries = entries.into_iter();
    List { first: entries.next(), rest: entries.collect() }
}
