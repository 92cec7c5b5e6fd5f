//! Content of a turn that a response does not show, or shows in another form
//! (docs/protocols/responses.md#what-is-lost).

use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent};
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::run::Run;
use interlingua_core::{Extra, Json};

use crate::options::{DataDisplay, Options, Reasoning, ToolItems};

/// Notes the losses of the last turn. `tools`: what the request declared.
pub(crate) fn note(run: &Run, tools: &[Json], options: &Options, losses: &mut Losses) {
    let hosted =
        tools.iter().filter(|tool| !matches!(kind(tool).as_deref(), Some("function" | "custom" | "namespace")));
    hosted.for_each(|_| losses.lost(ContentKind::ToolDeclaration, "tools that OpenAI would run are not run"));
    contents::note(run, losses, |found| fate(found, options));
}

fn kind(tool: &Json) -> Option<String> {
    tool.decode::<Extra>()?.get("type")?.decode()
}

fn fate(found: &FoundContent<'_>, options: &Options) -> ContentChange {
    use ContentKind as K;
    match found.kind {
        K::Reasoning if options.reasoning == Reasoning::Hide => {
            Some((Change::Lost, "hidden by the route's option reasoning"))
        }
        K::AgentCall | K::AgentOutput if options.tool_items == ToolItems::Hide => {
            Some((Change::Lost, "hidden by the route's option tool_items"))
        }
        K::Question | K::Schema | K::Login => Some((Change::Changed, "asked as a call of a function")),
        K::ProtocolEvent => Some((Change::Lost, "events of another protocol")),
        K::ImageOut if found.is_inline() => Some((Change::Changed, "shown as a generated image")),
        K::ImageOut | K::VideoOut | K::AudioOut | K::FileOut => Some((Change::Changed, "shown as a link in the text")),
        K::DataOut => Some(if options.data == DataDisplay::Text {
            (Change::Changed, "shown as text")
        } else {
            (Change::Lost, "hidden by the route's option data")
        }),
        _ => None,
    }
}
