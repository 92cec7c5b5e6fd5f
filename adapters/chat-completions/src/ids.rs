//! Names of this protocol: in the configuration, and of a completion.

use interlingua_core::RunId;

/// Name of the protocol in the configuration.
pub(crate) const NAME: &str = "chat-completions";

const COMPLETION_PREFIX: &str = "chatcmpl-";

/// The id of the completion of a run, the same in all its chunks.
pub(crate) fn completion(run: RunId) -> String {
    run.to_prefixed(COMPLETION_PREFIX)
}

/// The run of a completion. `None`: no completion of this gateway has such an id.
pub(crate) fn parse_completion(id: &str) -> Option<RunId> {
    id.strip_prefix(COMPLETION_PREFIX).and_then(RunId::parse).filter(|run| completion(*run) == id)
}
