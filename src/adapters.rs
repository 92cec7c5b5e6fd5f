//! The list of built-in protocols.

use interlingua_a2a::A2a;
use interlingua_ag_kit::AgKit;
use interlingua_chat_completions::ChatCompletionsUpstream;
use interlingua_hitl::Hitl;
use interlingua_native::{Native, NativeUpstream};
use interlingua_responses::Responses;

use crate::Gateway;

/// A gateway with all built-in protocols.
pub(crate) fn builtin() -> Gateway {
    Gateway::empty()
        .serve::<Native>()
        .serve::<Responses>()
        .serve::<A2a>()
        .serve::<AgKit>()
        .serve::<Hitl>()
        .upstream::<NativeUpstream>()
        .upstream::<ChatCompletionsUpstream>()
}
