//! Content of a turn that a stream does not show, or shows in another form (docs/protocols/ag-kit.md#what-is-lost).

use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent};
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::run::Run;

use crate::{Data, Media, Options, Reasoning};

/// Notes the losses of the last turn.
pub(crate) fn note(run: &Run, options: &Options, losses: &mut Losses) {
    contents::note(run, losses, |found| fate(found, options));
}

fn fate(found: &FoundContent<'_>, options: &Options) -> ContentChange {
    use ContentKind as K;
    match found.kind {
        K::Reasoning => match options.reasoning {
            Reasoning::Drop => Some((Change::Lost, "hidden by the route's option reasoning")),
            Reasoning::Text => Some((Change::Changed, "shown in the text, between marks")),
            Reasoning::Event => None,
        },
        K::Refusal => Some((Change::Changed, "shown as text")),
        K::Structure => Some((Change::Changed, "texts follow one another, with no bounds between messages")),
        K::Usage => Some((Change::Lost, "the protocol has no usage")),
        K::EndReason => Some((Change::Lost, "the protocol has no end but the end of the stream")),
        K::ErrorCode => Some((Change::Lost, "errors in a stream have no codes")),
        K::Annotation => Some((Change::Lost, "the protocol has no annotations")),
        K::ProtocolEvent => Some((Change::Lost, "events of another protocol")),
        K::ImageOut | K::VideoOut | K::AudioOut | K::FileOut => Some(if options.media != Media::Link {
            (Change::Lost, "hidden by the route's option media")
        } else if found.is_inline() {
            (Change::Lost, "media without a URL have no place in the text")
        } else {
            (Change::Changed, "shown as a link in the text")
        }),
        K::DataOut => Some(if options.data == Data::Text {
            (Change::Changed, "shown as text")
        } else {
            (Change::Lost, "hidden by the route's option data")
        }),
        _ => None,
    }
}
