//! The four A2A dialects: two protocol versions times two bindings, and how a request selects one (sections 1 to 3).
//!
//! Not here: encoding (`wire`) and operations (`serve`).

use interlingua_core::Request;
use serde::Deserialize;

/// A served protocol version, as options and cards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Generation {
    /// 1.0
    #[serde(rename = "1.0")]
    V1,
    /// 0.3
    #[serde(rename = "0.3")]
    V03,
}

impl Generation {
    /// As `major.minor`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V03 => "0.3",
        }
    }
}

/// A binding of the protocol to HTTP, as options and cards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Binding {
    /// JSON-RPC 2.0 over POST.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// REST: resources and HTTP methods.
    #[serde(rename = "HTTP+JSON")]
    Rest,
}

impl Binding {
    /// The name in agent cards.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::Rest => "HTTP+JSON",
        }
    }
}

/// JSON encoding of objects: one for both bindings of 1.0, one for each binding of 0.3 (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WireFormat {
    V1,
    V03,
    V03Rest,
}

/// Binding and version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) binding: Binding,
    pub(crate) generation: Generation,
}

impl Dialect {
    pub(crate) const fn wire_format(self) -> WireFormat {
        match (self.generation, self.binding) {
            (Generation::V1, _) => WireFormat::V1,
            (Generation::V03, Binding::JsonRpc) => WireFormat::V03,
            (Generation::V03, Binding::Rest) => WireFormat::V03Rest,
        }
    }

    pub(crate) fn is_rpc(self) -> bool {
        self.binding == Binding::JsonRpc
    }

    pub(crate) fn is_v03(self) -> bool {
        self.generation == Generation::V03
    }
}

/// The version a request names: in the header, else in the query. Only `major.minor` counts (S).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedVersion {
    V1,
    V03,
    /// Not named, which means 0.3.
    Missing,
    Other,
}

impl RequestedVersion {
    pub(crate) fn from_request(request: &Request<'_>) -> Self {
        let header = request.header("a2a-version").map(str::trim).filter(|text| !text.is_empty());
        match header {
            Some(text) => Self::parse(text),
            None => request.query("A2A-Version").map_or(Self::Missing, |text| Self::parse(&text)),
        }
    }

    fn parse(text: &str) -> Self {
        let mut numbers = text.trim().split('.');
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(""), None, ..) => Self::Missing,
            (Some("1"), Some("0"), patch, None) if is_patch(patch) => Self::V1,
            (Some("0"), Some("3"), patch, None) if is_patch(patch) => Self::V03,
            _ => Self::Other,
        }
    }

    /// The version to respond in. Errors for an unknown version are sent in 1.0.
    pub(crate) const fn generation(self) -> Generation {
        match self {
            Self::V03 | Self::Missing => Generation::V03,
            Self::V1 | Self::Other => Generation::V1,
        }
    }
}

fn is_patch(patch: Option<&str>) -> bool {
    patch.is_none_or(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The operations of the protocol (section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    SetPush,
    GetPush,
    ListPush,
    DeletePush,
    ExtendedCard,
}

impl Operation {
    /// JSON-RPC method names in 1.0 and 0.3.
    pub(crate) const METHODS: [(Self, &'static str, Option<&'static str>); 11] = [
        (Self::Send, "SendMessage", Some("message/send")),
        (Self::Stream, "SendStreamingMessage", Some("message/stream")),
        (Self::Get, "GetTask", Some("tasks/get")),
        (Self::List, "ListTasks", None),
        (Self::Cancel, "CancelTask", Some("tasks/cancel")),
        (Self::Subscribe, "SubscribeToTask", Some("tasks/resubscribe")),
        (Self::SetPush, "CreateTaskPushNotificationConfig", Some("tasks/pushNotificationConfig/set")),
        (Self::GetPush, "GetTaskPushNotificationConfig", Some("tasks/pushNotificationConfig/get")),
        (Self::ListPush, "ListTaskPushNotificationConfigs", Some("tasks/pushNotificationConfig/list")),
        (Self::DeletePush, "DeleteTaskPushNotificationConfig", Some("tasks/pushNotificationConfig/delete")),
        (Self::ExtendedCard, "GetExtendedAgentCard", Some("agent/getAuthenticatedExtendedCard")),
    ];

    /// True if the response is a stream.
    pub(crate) const fn is_streaming(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }
}
