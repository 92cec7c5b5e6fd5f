//! Messages that are being built.

use interlingua_core::json::Json;
use interlingua_core::model::{Body, Content, ContentType, MessageType, Role, Status};
use interlingua_core::run::RunError;

/// A message in progress.
#[derive(Clone, Debug)]
pub(super) struct MessageDraft {
    pub(super) id: String,
    pub(super) kind: MessageType,
    pub(super) role: Role,
    pub(super) status: Status,
    /// The sequence number of its last frame.
    pub(super) number: Option<u64>,
    pub(super) contents: Vec<ContentDraft>,
    pub(super) error: Option<RunError>,
    pub(super) usage: Option<Json>,
    pub(super) metadata: Option<Json>,
}

/// A content in progress.
#[derive(Clone, Debug)]
pub(super) struct ContentDraft {
    pub(super) kind: ContentType,
    /// The last value from a `set_*` call.
    pub(super) set: Option<Body>,
    /// Text deltas, appended to `set`.
    pub(super) text: String,
    /// The final value once complete.
    pub(super) complete: Option<Content>,
}
