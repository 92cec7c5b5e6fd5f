//! Content of a turn that a stream does not show, or shows in another form (docs/protocols/ag-ui.md#what-is-lost).

use interlingua_adapter_kit::call_output;
use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent};
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::model::ContentType;
use interlingua_core::run::{Message, Run};

use super::options::{Media, Options, ReasoningForm};

/// Notes the losses of the last turn. Events of this protocol note their own. `is_v1`: the client knows version 1.0.
pub(super) fn note(run: &Run, options: &Options, is_v1: bool, losses: &mut Losses) {
    contents::note(run, losses, |found| fate(found, options, is_v1));
}

fn fate(found: &FoundContent<'_>, options: &Options, is_v1: bool) -> ContentChange {
    use ContentKind as K;
    match found.kind {
        K::Reasoning if options.reasoning == ReasoningForm::Drop => {
            Some((Change::Lost, "hidden by the route's option reasoning"))
        }
        K::Refusal => Some((Change::Changed, "shown as text")),
        K::Annotation => Some((Change::Changed, "sent as a custom event")),
        K::ImageOut | K::VideoOut | K::AudioOut | K::FileOut => Some(fate_of_media(found, options, is_v1)),
        // Media of a tool are contents of its output's message.
        K::AgentOutput if is_media(found) => Some(fate_of_media(found, options, is_v1)),
        K::DataOut => Some((Change::Changed, "sent as a custom event")),
        _ => None,
    }
}

fn is_media(found: &FoundContent<'_>) -> bool {
    use ContentType as T;
    found.slot.is_some_and(|slot| matches!(slot.kind, T::Image | T::Audio | T::Video | T::File))
}

fn fate_of_media(found: &FoundContent<'_>, options: &Options, is_v1: bool) -> (Change, &'static str) {
    let media = found.message.map_or(options.media, |message| options.media.of_message(&message.announced));
    let results = found.message.filter(|message| message.announced.is_output()).map(count_results);
    match media {
        Media::Both | Media::Custom if is_v1 && results == Some(1) => (Change::Changed, "sent as a part"),
        Media::Both | Media::Custom => (Change::Changed, "sent as a custom event"),
        Media::Link if found.is_inline() => (Change::Lost, "media without a URL have no place in the text"),
        // No text is theirs.
        Media::Link if results.is_some_and(|count| count != 1) => {
            (Change::Lost, "media beside several results belong to none")
        }
        Media::Link => (Change::Changed, "shown as a link in the text"),
        Media::Drop => (Change::Lost, "hidden by the route's option media"),
    }
}

/// The number of results in an output message.
fn count_results(message: &Message) -> usize {
    message.slots.iter().filter(|slot| call_output::parse(slot).is_some()).count()
}
