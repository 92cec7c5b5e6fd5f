//! One content while it arrives: waiting fragments, the latest snapshot, and the final value.

use std::borrow::Cow;

use super::merge::{self, Growing};
use crate::agent_event::{CallPart, ContentEvent, ContentValue, empty_body, to_extra};
use crate::json::{Extra, Json};
use crate::model::{Body, Content, ContentType, ToolCall};
use crate::run::{CallHead, content_size};

/// The data of a call, parsed.
pub(super) struct CallData<'a> {
    pub(super) part: CallPart<'a>,
    /// Its other fields.
    pub(super) rest: Extra,
}

impl<'a> CallData<'a> {
    /// `None` if the data is not an object.
    pub(super) fn from_event(event: &'a ContentEvent<'_>) -> Option<Self> {
        let raw = match &event.value {
            ContentValue::Call(part) => return Some(Self { part: part.clone(), rest: Extra::new() }),
            ContentValue::Data(Some(raw)) => raw,
            ContentValue::OwnedData(json) => json.raw(),
            _ => return None,
        };
        let (part, rest) = CallPart::parse(raw)?;
        Some(Self { part, rest: to_extra(&rest) })
    }
}

#[derive(Debug)]
pub(super) struct ContentState {
    /// The upstream's index.
    pub(super) index: u32,
    /// True if the upstream sent the index.
    pub(super) placed: bool,
    pub(super) kind: ContentType,
    /// The content of the same index and kind before this one, which is final.
    pub(super) before: Option<usize>,
    /// Bytes of text that the contents before have emitted.
    pub(super) emitted_before: usize,
    /// Its index in the run's message, once it has begun there.
    pub(super) at: Option<u32>,
    pub(super) finished: bool,
    pub(super) complete: bool,
    /// The identity of the call of this body. Does not change once the content has begun.
    pub(super) call: Option<CallHead>,
    /// Fragments that have not been emitted. Empty if there is a snapshot.
    pub(super) waiting: String,
    /// The latest complete text, unless it was emitted as a fragment.
    pub(super) snapshot: Option<String>,
    value: Option<Content>,
    /// Data that grows by fragments; for a call, its other fields.
    growing: Option<Growing>,
    /// The size of the fragments in `growing`, in bytes.
    grown: usize,
    extra: Extra,
    /// The memory of unknown fields, in bytes.
    besides: usize,
    /// The part of its memory that is counted as held, in bytes.
    pub(super) counted: usize,
}

impl ContentState {
    pub(super) fn new(index: u32, kind: ContentType) -> Self {
        Self {
            index,
            placed: false,
            kind,
            before: None,
            emitted_before: 0,
            at: None,
            finished: false,
            complete: false,
            call: None,
            waiting: String::new(),
            snapshot: None,
            value: None,
            growing: None,
            grown: 0,
            extra: Extra::new(),
            besides: 0,
            counted: 0,
        }
    }

    pub(super) const fn is_text(&self) -> bool {
        matches!(self.kind, ContentType::Text | ContentType::Refusal)
    }

    /// True if there is something to emit.
    pub(super) fn is_ready(&self) -> bool {
        self.complete
            || (self.is_text() && (!self.waiting.is_empty() || self.snapshot.is_some()))
            || self.call.as_ref().is_some_and(|head| !head.name.is_empty() && !head.call_id.is_empty())
    }

    /// Adds a text, complete or a fragment.
    pub(super) fn text_part(&mut self, event: &ContentEvent<'_>, text: &str, fragment: bool) {
        if fragment {
            self.grow(text);
        } else if !text.is_empty() {
            self.say(text.to_owned());
        }
        if !event.extra.is_empty() {
            self.extra = to_extra(&event.extra);
            self.besides = self.extra.size();
        }
    }

    fn grow(&mut self, text: &str) {
        match &mut self.snapshot {
            Some(snapshot) => snapshot.push_str(text),
            None => self.waiting.push_str(text),
        }
    }

    /// A complete text replaces what has not been emitted yet.
    fn say(&mut self, text: String) {
        self.waiting.clear();
        self.snapshot = Some(text);
    }

    /// Adds the body of a call, complete or a fragment. Data that is not an object is ignored.
    pub(super) fn call_part(&mut self, event: &ContentEvent<'_>, call: Option<&CallData<'_>>, fragment: bool) {
        let Some(call) = call else { return };
        self.learn(&call.part);
        if fragment {
            self.grow(&call.part.arguments);
            if !call.rest.is_empty() {
                self.grow_data(&Json::from_serialize(&call.rest));
            }
            if !event.extra.is_empty() {
                self.extra = to_extra(&event.extra);
                self.besides = self.extra.size();
            }
            return;
        }

        self.say(call.part.arguments.clone().into_owned());
        self.growing = None;
        self.grown = 0;
        if let ContentValue::Call(_) = event.value {
            // Built from the parts at the end: there is no JSON of the agent to keep.
            self.extra = to_extra(&event.extra);
            self.besides = self.extra.size();
        } else {
            let value = event.to_content();
            self.besides = value.extra.size();
            self.value = Some(value);
        }
    }

    /// Stores the identity of the call, unless the content has begun.
    fn learn(&mut self, call: &CallPart<'_>) {
        if self.at.is_some() {
            return;
        }

        let head = self.call.get_or_insert_default();
        if !call.call_id.is_empty() {
            head.call_id = call.call_id.clone().into_owned();
        }
        if !call.name.is_empty() {
            head.name = call.name.clone().into_owned();
        }
        if call.server_label.is_some() {
            head.server_label = call.server_label.clone().map(Cow::into_owned);
        }
    }

    fn grow_data(&mut self, fragment: &Json) {
        self.grown += fragment.text().len();
        match &mut self.growing {
            Some(growing) => growing.merge(fragment),
            None => self.growing = Some(Growing::Kept(fragment.clone())),
        }
    }

    pub(super) const fn is_media(&self) -> bool {
        is_media(&self.kind)
    }

    /// True if the event contains another image, audio, video or file than this content: not more of the same URL, and
    /// not the same file with more fields.
    pub(super) fn is_another(&self, event: &ContentEvent<'_>, fragment: bool) -> bool {
        if !self.is_media() || self.finished {
            return false;
        }
        let Some(old) = &self.value else { return false };
        let differ = |old: Option<&String>, new: Option<&String>| {
            old.zip(new).is_some_and(|(old, new)| !old.is_empty() && !new.is_empty() && !new.starts_with(old.as_str()))
        };
        match (&old.body, &event.to_content().body) {
            (Body::Image(_), Body::Image(Some(piece))) if fragment && !merge::is_address(piece) => false,
            (Body::Image(old), Body::Image(new)) | (Body::Video(old), Body::Video(new)) => {
                differ(old.as_ref(), new.as_ref())
            }
            (Body::Audio { data: old, .. }, Body::Audio { data: new, .. }) => differ(old.as_ref(), new.as_ref()),
            (Body::File(old), Body::File(new)) => {
                let fields = [(&old.url, &new.url), (&old.id, &new.id), (&old.data, &new.data)];
                fields.into_iter().any(|(old, new)| differ(old.as_ref(), new.as_ref()))
            }
            _ => false,
        }
    }

    /// Adds any other value, complete or a fragment.
    pub(super) fn value_part(&mut self, event: &ContentEvent<'_>, fragment: bool) {
        let Content { body, extra } = event.to_content();
        let old = self.value.take();
        if !extra.is_empty() {
            self.besides = extra.size();
        }
        let body = match (old.map(|old| (old.body, old.extra)), body) {
            // An empty value changes nothing.
            (Some((old, kept)), Body::Data(data)) if data.is_null() => {
                self.value = Some(Content { body: old, extra: if extra.is_empty() { kept } else { extra } });
                return;
            }
            (Some((Body::Data(old), _)), Body::Data(data)) if fragment => {
                if self.growing.is_none() {
                    self.grow_data(&old);
                }
                self.grow_data(&data);
                // A placeholder for the growing data, which replaces it at the end.
                Body::Data(Json::null())
            }
            (Some((Body::Image(Some(old)), _)), Body::Image(Some(more))) if fragment => {
                Body::Image(Some(merge::address(old, more)))
            }
            (Some((old @ Body::Image(Some(_)), _)), Body::Image(None)) => old,
            (_, body) => {
                self.growing = None;
                self.grown = 0;
                body
            }
        };
        self.value = Some(Content { body, extra });
    }

    /// The message is a call: the data received so far is its body.
    pub(super) fn become_call(&mut self) {
        if self.call.is_none() {
            self.settle_growing();
            let call = self.value.as_ref().and_then(Content::as_data).filter(|data| data.is_object());
            let call = call.and_then(|data| Some(CallPart::parse(data.raw())?.0)).unwrap_or_default().into_owned();
            self.learn(&call);
            self.say(call.arguments.into_owned());
        }
    }

    /// The message is not a call: the body received so far is ordinary data.
    pub(super) fn become_value(&mut self) {
        let Some(head) = self.call.take() else { return };
        let arguments = self.snapshot.take().unwrap_or_default() + &std::mem::take(&mut self.waiting);
        if self.value.is_none() && !self.is_text() {
            let body = self.rebuild(&head, &arguments, None);
            self.value = Some(body);
        }
        self.growing = None;
    }

    /// The latest value. For growing data, the first fragment.
    pub(super) fn latest_value(&self) -> Option<&Body> {
        self.value.as_ref().map(|value| &value.body)
    }

    /// The value received so far. `None` for texts and for final contents.
    pub(super) fn value(&mut self) -> Option<&Body> {
        if self.call.is_none() {
            self.settle_growing();
        }
        self.value.as_ref().map(|value| &value.body)
    }

    /// The final value, after its text was emitted, and the unknown fields of a text.
    pub(super) fn conclude(&mut self, head: Option<&CallHead>, text: &str) -> (Option<Content>, Extra) {
        let value = match head {
            Some(head) => match self.value.take() {
                // The data is kept verbatim if it agrees with what was emitted; else it is built from that.
                Some(value) if self.growing.is_none() && says(&value, head, text) => Some(value),
                None if self.growing.is_none() => None,
                value => Some(self.rebuild(head, text, value)),
            },
            None if self.is_text() => None,
            None => {
                self.settle_growing();
                let empty = || Content { body: empty_body(&self.kind), extra: Extra::new() };
                Some(self.value.take().unwrap_or_else(empty))
            }
        };
        self.growing = None;
        (value, std::mem::take(&mut self.extra))
    }

    /// Builds a call's data from what was emitted and from its other fields.
    fn rebuild(&mut self, head: &CallHead, arguments: &str, value: Option<Content>) -> Content {
        let (body, extra) =
            value.map_or_else(|| (None, std::mem::take(&mut self.extra)), |value| (Some(value.body), value.extra));
        let mut all = match body {
            Some(Body::Data(data)) => Growing::Kept(data),
            _ => Growing::Kept(Json::from_serialize(&Extra::new())),
        };
        if let Some(besides) = self.growing.take() {
            all.merge(&besides.into_json());
        }
        let mut fields = all.into_json().decode::<Extra>().unwrap_or_default();
        fields.set("call_id", Json::from_serialize(&head.call_id));
        fields.set("name", Json::from_serialize(&head.name));
        fields.set("arguments", Json::from_serialize(arguments));
        if let Some(label) = &head.server_label {
            fields.set("server_label", Json::from_serialize(label));
        }
        Content { body: Body::Data(Json::from_serialize(&fields)), extra }
    }

    fn settle_growing(&mut self) {
        if let (Some(growing), Some(value)) = (self.growing.take(), &mut self.value) {
            value.body = Body::Data(growing.into_json());
        }
    }

    /// Its approximate memory, in bytes.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>()
            + self.waiting.len()
            + self.snapshot.as_ref().map_or(0, String::len)
            + self.value.as_ref().map_or(0, content_size)
            + self.grown
            + self.besides
    }
}

/// True for images, audio, videos and files: content that is a URL or inline bytes.
pub(super) const fn is_media(kind: &ContentType) -> bool {
    matches!(kind, ContentType::Image | ContentType::Audio | ContentType::Video | ContentType::File)
}

/// True if a call's data equals this call, with its arguments as text.
fn says(value: &Content, head: &CallHead, arguments: &str) -> bool {
    let Some(data) = value.as_data() else { return false };
    let call: Option<ToolCall> = data.decode();
    let is_text = data.decode::<Extra>().is_some_and(|fields| {
        ["arguments", "call_id", "name"]
            .iter()
            .all(|name| fields.get(name).is_some_and(|field| field.text().starts_with('"')))
    });
    is_text
        && call
            .is_some_and(|call| call.call_id == head.call_id && call.name == head.name && call.arguments == arguments)
}
