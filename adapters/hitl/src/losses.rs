//! Content of a turn that an answer of the service does not show, or shows in another form
//! (docs/human-in-the-loop.md#what-is-lost).

use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent};
use interlingua_core::event::End;
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::run::Run;

use crate::{Options, Reasoning};

/// Notes the losses of the last turn.
pub(crate) fn note(run: &Run, options: &Options, losses: &mut Losses) {
    // An error has no result, and a question is sent without the messages before it: the end shows them.
    let has_result = !matches!(run.turn().and_then(|turn| turn.end), Some(End::Failed | End::Rejected | End::Canceled));
    contents::note(run, losses, |found| fate(found, has_result, options));
}

fn fate(found: &FoundContent<'_>, has_result: bool, options: &Options) -> ContentChange {
    use ContentKind as K;
    match found.kind {
        K::Usage => Some((Change::Lost, "the protocol has no usage")),
        K::EndReason => Some((Change::Lost, "an answer is complete or an error")),
        K::ErrorCode => Some((Change::Lost, "errors of the agent have no codes")),
        _ if !has_result => Some((Change::Lost, "an answer that failed has its error only")),
        K::Reasoning if options.reasoning == Reasoning::Drop => {
            Some((Change::Lost, "hidden by the route's option reasoning"))
        }
        K::Refusal => Some((Change::Changed, "shown as text")),
        K::Annotation => Some((Change::Lost, "messages have no annotations")),
        K::ProtocolEvent => Some((Change::Lost, "events of another protocol")),
        K::ImageOut | K::VideoOut | K::AudioOut | K::FileOut => Some(if found.is_inline() {
            (Change::Lost, "media without a URL have no place in the text")
        } else {
            (Change::Changed, "shown as a link in the text")
        }),
        K::DataOut => Some((Change::Changed, "shown as text")),
        _ => None,
    }
}
