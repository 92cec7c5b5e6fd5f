//! `notifications/cancelled`: cancels the run of an open call.

use interlingua_core::call::{Reply, Tags, Target};
use interlingua_core::{Call, RunId};

use super::session::{self, REQUEST_TAG};
use crate::envelope::{Params, RpcId};
use crate::tokens::SessionToken;

/// The tag of a run whose own client has cancelled it.
pub(super) const CANCELLED_TAG: &str = "mcp.cancelled";

/// The runs of a cancelled call.
pub(super) struct Cancel {
    request: String,
    /// Not cancelled yet.
    runs: Vec<(RunId, Tags)>,
    /// The run that is cancelled, and marked next: no other gateway can mark a run before its end.
    cancelled: Option<(RunId, Tags)>,
    has_listed: bool,
}

impl Cancel {
    /// Reads the notification. `None`: it names no request.
    pub(super) fn decode(session: &SessionToken, params: &Params) -> Option<(Self, Call)> {
        let id = params.get("requestId").and_then(RpcId::read)?;
        let request = session::tags(session, &id).remove(REQUEST_TAG)?;
        let call = session::open_calls(REQUEST_TAG, request.clone());
        Some((Self { request, runs: Vec::new(), cancelled: None, has_listed: false }, call))
    }

    /// The next call. `None`: all runs of the call are cancelled.
    pub(super) fn reply(&mut self, reply: &Reply<'_>) -> Option<Call> {
        if let Reply::Runs(page) = reply
            && !self.has_listed
        {
            self.has_listed = true;
            self.runs = page.runs.iter().map(|view| (view.run().id, view.info.tags.clone())).collect();
        }
        // The stream of the call waits for the mark, and sends no response.
        if let Some((run, mut tags)) = self.cancelled.take() {
            tags.insert(CANCELLED_TAG.to_owned(), self.request.clone());
            return Some(Call::Tag(Target::Run(run), tags));
        }
        let (run, tags) = self.runs.pop()?;
        self.cancelled = Some((run, tags));
        Some(Call::Cancel(Target::Run(run)))
    }
}
