//! Content of a turn that a task does not show, or shows in another form
//! (docs/protocols/a2a.md#what-a-client-receives).

use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent};
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::run::Run;

use crate::options::{Options, Reasoning, Tools};

/// Notes the losses of the last turn.
pub(crate) fn note(run: &Run, options: &Options, losses: &mut Losses) {
    contents::note(run, losses, |found| fate(found, options));
}

fn fate(found: &FoundContent<'_>, options: &Options) -> ContentChange {
    use ContentKind as K;
    match found.kind {
        K::Reasoning if options.reasoning == Reasoning::Drop => {
            Some((Change::Lost, "hidden by the route's option reasoning"))
        }
        K::AgentCall | K::AgentOutput if options.tools == Tools::Drop => {
            Some((Change::Lost, "hidden by the route's option tools"))
        }
        K::Annotation => Some((Change::Lost, "artifacts have no annotations")),
        K::EndReason => Some((Change::Lost, "a task says that an answer is incomplete, and not why")),
        K::ProtocolEvent => Some((Change::Lost, "events of another protocol")),
        _ => None,
    }
}
