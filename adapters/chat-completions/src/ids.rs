//! Names of this protocol: in the configuration, and of a completion.

use interlingua_core::RunId;

/// Name of the protocol in the configuration.
pub(crate) const NAME: &str = "chat-completions";

/// The id of the completion of a run, the same in all its chunks.
pub(crate) fn completion(run: RunId) -> String {
    run.to_prefixed("chatcmpl-")
}
