//! Ids of events, with which clients resume the stream of a call.

use interlingua_core::RunId;

use crate::envelope::RpcId;

/// Maximum length of an id in bytes.
const MAX_BYTES: usize = 1024;

/// The id of an event: which call it belongs to, and how much of the call's run its client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    /// The first run of the call.
    pub(super) run: RunId,
    /// The number of events of the run, and of the runs that answered it, that the client knows of.
    pub(super) position: u64,
    /// The id of the call.
    pub(super) request: RpcId,
}

impl EventId {
    /// Reads an id. `None`: it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let mut parts = text.split('.');
        let (run, position, request) = (parts.next()?, parts.next()?, parts.next()?);
        let is_number = !position.is_empty() && position.bytes().all(|byte| byte.is_ascii_digit());
        if parts.next().is_some() || !is_number {
            return None;
        }
        Some(Self { run: RunId::parse(run)?, position: position.parse().ok()?, request: RpcId::from_base64(request)? })
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}.{}", self.run, self.position, self.request.to_base64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let run = RunId::parse("01930000-0000-7000-8000-000000000001").expect("an id");
        for request in [RpcId::Number(7), RpcId::Text("a.b\n".to_owned())] {
            let id = EventId { run, position: 42, request };
            assert_eq!(EventId::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn malformed_ids_are_refused() {
        let run = "01930000-0000-7000-8000-000000000001";
        let long = format!("{run}.1.{}", "A".repeat(2000));
        for text in ["", "1", "a.b.c", &format!("{run}.1"), &format!("{run}.-1.Nw"), &format!("{run}.1.?"), &long] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
        assert!(EventId::parse(&format!("{run}.1.Nw")).is_some());
        assert_eq!(EventId::parse(&format!("{run}.1.Nw.Nw")), None);
    }
}
