//! The list of built-in protocols.

use interlingua_a2a::{A2a, A2aUpstream};
use interlingua_ag_kit::{AgKit, AgKitUpstream};
use interlingua_ag_ui::{AgUi, AgUiUpstream};
use interlingua_agentscope::AgentscopeUpstream;
use interlingua_anthropic_messages::{AnthropicMessages, AnthropicMessagesUpstream};
use interlingua_chat_completions::{ChatCompletions, ChatCompletionsUpstream};
use interlingua_hitl::{Hitl, HitlUpstream};
use interlingua_mcp::Mcp;
use interlingua_native::{Native, NativeUpstream};
use interlingua_responses::{Responses, ResponsesUpstream};

use crate::Gateway;

impl Gateway {
    /// All built-in protocols.
    #[must_use]
    pub fn builtin() -> Self {
        Self::empty()
            .serve::<Native>()
            .serve::<Responses>()
            .serve::<ChatCompletions>()
            .serve::<AnthropicMessages>()
            .serve::<A2a>()
            .serve::<AgKit>()
            .serve::<Hitl>()
            .serve::<AgUi>()
            .serve::<Mcp>()
            .upstream::<NativeUpstream>()
            .upstream::<A2aUpstream>()
            .upstream::<ChatCompletionsUpstream>()
            .upstream::<AnthropicMessagesUpstream>()
            .upstream::<ResponsesUpstream>()
            .upstream::<AgKitUpstream>()
            .upstream::<AgUiUpstream>()
            .upstream::<HitlUpstream>()
            .upstream::<AgentscopeUpstream>()
    }
}
