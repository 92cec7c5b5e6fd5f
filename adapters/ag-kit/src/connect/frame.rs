//! One event of a stream, read leniently: a field of another type than the protocol's is absent.

use std::borrow::Cow;

use interlingua_core::lenient::{Object, Raw, Text};
use interlingua_core::lenient_fields;
use serde::Deserialize;

/// The fields of all events. Texts are borrowed unless they hold escapes.
#[derive(Debug, Default)]
pub(super) struct Frame<'a> {
    kind: Text<'a>,
    content: Text<'a>,
    tool_call_id: Text<'a>,
    tool_call_name: Text<'a>,
    delta: Text<'a>,
    result: Raw<'a>,
    id: Text<'a>,
    reason: Text<'a>,
    pub(super) payload: Raw<'a>,
    pub(super) error: Raw<'a>,
}

lenient_fields! {
    Frame { frame, object =>
        "type" => kind,
        "content" => content,
        "toolCallId" => tool_call_id,
        "toolCallName" => tool_call_name,
        "delta" => delta,
        "result" => result,
        "id" => id,
        "reason" => reason,
        "payload" => payload,
        "error" => error,
    }
}

impl<'a> Frame<'a> {
    /// None: no JSON object.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        serde_json::from_slice::<Object<Self>>(data).ok()?.0
    }

    pub(super) fn kind(&self) -> &str {
        text(&self.kind)
    }

    pub(super) fn content(&self) -> &str {
        text(&self.content)
    }

    pub(super) fn call_id(&self) -> &str {
        text(&self.tool_call_id)
    }

    pub(super) fn call_name(&self) -> &str {
        text(&self.tool_call_name)
    }

    pub(super) fn delta(&self) -> &str {
        text(&self.delta)
    }

    pub(super) fn id(&self) -> &str {
        text(&self.id)
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.0.as_deref()
    }

    /// A tool's result: a text as it is, anything else as its JSON.
    pub(super) fn result_text(&self) -> Cow<'a, str> {
        let Some(raw) = self.result.0 else { return Cow::Borrowed("") };
        #[derive(Deserialize)]
        struct Plain<'t>(#[serde(borrow)] Cow<'t, str>);
        serde_json::from_str::<Plain<'a>>(raw.get()).map_or(Cow::Borrowed(raw.get()), |text| text.0)
    }
}

fn text<'t>(text: &'t Text<'_>) -> &'t str {
    text.0.as_deref().unwrap_or_default()
}
