//! The versions and bindings of the protocol, and the four dialects they make.
//!
//! Not here: which of them a request is in (`dialect`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A served protocol version, as options and cards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
pub enum Generation {
    /// 1.0
    #[serde(rename = "1.0")]
    V1,
    /// 0.3
    #[serde(rename = "0.3")]
    V03,
}

impl Generation {
    /// The version as `major.minor`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V03 => "0.3",
        }
    }
}

/// A binding of the protocol to HTTP, as options and cards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema, Serialize)]
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

/// JSON encoding of objects: one for both bindings of 1.0, one for each binding of 0.3
/// (docs/protocols/a2a.md#data-model).
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
