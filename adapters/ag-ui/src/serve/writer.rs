//! Events as frames of an event stream, or as length-prefixed protobuf messages (docs/protocols/ag-ui.md#transport).
//!
//! Frames are counted, so that a client that lost its connection gets the rest. Not here: which events there are.

use bytes::BufMut;
use interlingua_core::out::Head;
use interlingua_core::{Fault, FaultKind, Out};
use serde::Serialize;

use super::proto;

/// The media type of protobuf events. Clients compare it as a whole, so it has no parameters.
pub(super) const PROTOBUF: &str = "application/vnd.ag-ui.event+proto";

/// The format of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    #[default]
    EventStream,
    Protobuf,
}

impl Format {
    /// The format that an `Accept` header prefers.
    ///
    /// # Errors
    /// If it excludes every format.
    pub(super) fn choose(accept: Option<&str>, has_protobuf: bool) -> Result<Self, Fault> {
        let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else { return Ok(Self::EventStream) };
        // `*/*` fits both: a client that reads protobuf names it.
        let protobuf = if has_protobuf { named_quality(accept, PROTOBUF).unwrap_or(0) } else { 0 };
        match stream_quality(accept) {
            0 if protobuf == 0 => Err(Fault::new(FaultKind::NotAcceptable, "answers are of type text/event-stream")),
            stream if protobuf >= stream => Ok(Self::Protobuf),
            _ => Ok(Self::EventStream),
        }
    }
}

/// The entries of an `Accept` header: the media type and its quality in thousandths.
fn entries(accept: &str) -> impl Iterator<Item = (&str, u32)> {
    accept.split(',').map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        (media, quality.map_or(1000, thousandths))
    })
}

/// A quality such as `0.75`. An invalid one counts as 1, like an absent one.
fn thousandths(text: &str) -> u32 {
    let quality: f32 = text.trim().parse().unwrap_or(1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
    let thousandths = (quality.clamp(0.0, 1.0) * 1000.0) as u32;
    thousandths
}

/// The quality of the event stream: that of its most specific entry. Clients that accept JSON get it too, since its
/// events are JSON.
fn stream_quality(accept: &str) -> u32 {
    let ranges = ["text/event-stream", "text/*", "*/*", "application/json", "application/*"];
    ranges.iter().find_map(|range| named_quality(accept, range)).unwrap_or(0)
}

/// The quality of an entry with this name.
fn named_quality(accept: &str, name: &str) -> Option<u32> {
    entries(accept).find(|(entry, _)| entry.eq_ignore_ascii_case(name)).map(|(_, quality)| quality)
}

/// Writes the events of one stream.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) format: Format,
    /// True if frames have numbers.
    has_ids: bool,
    /// The number of the last event that the client has. `None`: it has none.
    after: Option<u64>,
    /// The number of the next event.
    next: u64,
}

/// The constant part of the events of one text: everything before the fragment.
#[derive(Clone, Debug, Default)]
pub(super) struct Template {
    kind: &'static str,
    /// JSON up to the fragment.
    json: Vec<u8>,
    id: String,
}

impl Template {
    /// The events of this type for this entity. `field`: the name of its id; `None`: the event has none.
    pub(super) fn new(kind: &'static str, field: Option<&str>, id: &str) -> Self {
        let mut out = Out::new();
        out.write_raw(b"{\"type\":\"");
        out.write_raw(kind.as_bytes());
        out.write_raw(b"\",");
        if let Some(field) = field {
            out.write_json(field);
            out.write_raw(b":");
            out.write_json(id);
            out.write_raw(b",");
        }
        out.write_raw(b"\"delta\":");
        Self { kind, json: out.body.to_vec(), id: id.to_owned() }
    }

    /// The type of the events.
    pub(super) const fn kind(&self) -> &'static str {
        self.kind
    }
}

impl Writer {
    /// For an event stream. `has_ids`: its frames have numbers.
    pub(super) fn new(has_ids: bool) -> Self {
        Self { has_ids, ..Self::default() }
    }

    /// Leaves out what the client has.
    pub(super) const fn skip_to(&mut self, after: u64) {
        self.after = Some(after);
    }

    /// True if the client has events already.
    pub(super) const fn skips(&self) -> bool {
        self.after.is_some()
    }

    /// The head of a stream. Proxies must neither buffer nor change it.
    pub(super) fn head(&self, head: &mut Head) {
        head.set(
            "content-type",
            match self.format {
                Format::EventStream => "text/event-stream; charset=utf-8",
                Format::Protobuf => PROTOBUF,
            },
        );
        head.set("cache-control", "no-cache, no-transform");
        head.set("x-accel-buffering", "no");
        head.set("vary", "accept");
    }

    /// Writes one event.
    pub(super) fn event<E: Serialize + ?Sized>(&mut self, event: &E, out: &mut Out) {
        let Some(number) = self.count() else { return };
        match self.format {
            Format::EventStream => {
                self.begin(number, out);
                out.write_json(event);
                out.end_frame();
            }
            Format::Protobuf => {
                let event = serde_json::to_value(event).unwrap_or_default();
                proto::write(&event, &mut out.body);
            }
        }
    }

    /// Writes a fragment. The hot path: it allocates only when the buffer grows.
    #[inline]
    pub(super) fn delta(&mut self, template: &Template, delta: &str, out: &mut Out) {
        let Some(number) = self.count() else { return };
        match self.format {
            Format::EventStream => {
                self.begin(number, out);
                out.write_raw(&template.json);
                out.write_json(delta);
                out.body.put_u8(b'}');
                out.end_frame();
            }
            Format::Protobuf => proto::write_delta(template.kind, &template.id, delta, &mut out.body),
        }
    }

    fn begin(&self, number: u64, out: &mut Out) {
        out.begin_frame(None, self.has_ids.then_some(number));
    }

    /// The number of the next event. `None`: the client has it.
    #[inline]
    fn count(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        self.after.is_none_or(|after| number > after).then_some(number)
    }

    /// Keeps a quiet stream alive. Protobuf has nothing that a client reads and ignores.
    pub(super) fn heartbeat(&self, out: &mut Out) {
        if self.format == Format::EventStream {
            out.comment("keep-alive");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        let choose = |accept: &str| Format::choose(Some(accept), true).map_err(|fault| fault.kind);
        for accept in
            ["", "*/*", "text/event-stream", "text/*", "application/json", "application/json, text/event-stream;q=0.5"]
        {
            assert_eq!(choose(accept), Ok(Format::EventStream), "{accept}");
        }
        for accept in [
            PROTOBUF,
            "application/vnd.ag-ui.event+proto, text/event-stream;q=0.9",
            "*/*, application/vnd.ag-ui.event+proto",
        ] {
            assert_eq!(choose(accept), Ok(Format::Protobuf), "{accept}");
        }
        assert_eq!(choose("application/vnd.ag-ui.event+proto;q=0.1, text/event-stream"), Ok(Format::EventStream));
        for accept in ["text/html", "text/event-stream;q=0", "image/*"] {
            assert_eq!(choose(accept), Err(FaultKind::NotAcceptable), "{accept}");
        }
        assert!(Format::choose(Some(PROTOBUF), false).is_err());
        assert!(matches!(Format::choose(None, true), Ok(Format::EventStream)));
    }
}
