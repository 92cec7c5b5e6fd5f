//! Content of a turn that a stream does not show, or shows in another form (docs/protocols/ag-ui.md#what-is-lost).

use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent};
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::run::Run;

use super::options::{Media, Options, ReasoningForm};

/// Notes the losses of the last turn. Events of this protocol note their own.
pub(super) fn note(run: &Run, options: &Options, losses: &mut Losses) {
    contents::note(run, losses, |found| fate(found, options));
}

fn fate(found: &FoundContent<'_>, options: &Options) -> ContentChange {
    use ContentKind as K;
    match found.kind {
        K::Reasoning if options.reasoning == ReasoningForm::Drop => {
            Some((Change::Lost, "hidden by the route's option reasoning"))
        }
        K::Refusal => Some((Change::Changed, "shown as text")),
        K::Annotation => Some((Change::Changed, "sent as a custom event")),
        K::ImageOut | K::VideoOut | K::AudioOut | K::FileOut => match options.media {
            Media::Both | Media::Custom => Some((Change::Changed, "sent as a custom event")),
            Media::Link if found.is_inline() => Some((Change::Lost, "media without a URL have no place in the text")),
            Media::Link => Some((Change::Changed, "shown as a link in the text")),
            Media::Drop => Some((Change::Lost, "hidden by the route's option media")),
        },
        K::DataOut => Some((Change::Changed, "sent as a custom event")),
        _ => None,
    }
}
