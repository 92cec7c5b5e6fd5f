//! A call that is held until it is known who runs it.

use interlingua_core::model::ToolCall;

/// A call that may be the client's or the agent's.
#[derive(Debug)]
pub(super) struct HeldCall {
    pub(super) call: ToolCall,
}
