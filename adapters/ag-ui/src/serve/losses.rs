//! Content of a turn that a stream does not show, or shows in another form (docs/protocols/ag-ui.md#what-is-lost).

use interlingua_adapter_kit::call_output;
use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent};
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::run::{Message, Run};

use super::options::{Media, Options, ReasoningForm};

/// Notes the losses of the last turn. Events of this protocol note their own.
pub(super) fn note(run: &Run, options: &Options, losses: &mut Losses) {
    contents::note(run, losses, |found| fate(found, options));
}

fn fate(found: &FoundContent<'_>, options: &Options) -> ContentChange {
    use ContentKind as K;
    let media = found.message.map_or(options.media, |message| options.media.of_message(&message.announced));
    match found.kind {
        K::Reasoning if options.reasoning == ReasoningForm::Drop => {
            Some((Change::Lost, "hidden by the route's option reasoning"))
        }
        K::Refusal => Some((Change::Changed, "shown as text")),
        K::Annotation => Some((Change::Changed, "sent as a custom event")),
        K::ImageOut | K::VideoOut | K::AudioOut | K::FileOut => match media {
            Media::Both | Media::Custom => Some((Change::Changed, "sent as a custom event")),
            Media::Link if found.is_inline() => Some((Change::Lost, "media without a URL have no place in the text")),
            Media::Link if has_no_text(found) => Some((Change::Lost, "media beside several results belong to none")),
            Media::Link => Some((Change::Changed, "shown as a link in the text")),
            Media::Drop => Some((Change::Lost, "hidden by the route's option media")),
        },
        K::DataOut => Some((Change::Changed, "sent as a custom event")),
        _ => None,
    }
}

/// True for media of tools that stand beside no result or several: no text is theirs.
fn has_no_text(found: &FoundContent<'_>) -> bool {
    let outputs = |message: &Message| message.slots.iter().filter(|slot| call_output::parse(slot).is_some()).count();
    found.message.is_some_and(|message| message.announced.is_output() && outputs(message) != 1)
}
