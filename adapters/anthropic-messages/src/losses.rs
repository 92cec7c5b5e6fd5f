//! Content of a turn that an answer does not show, or shows in another form
//! (docs/protocols/anthropic-messages.md#what-is-lost).

use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent, LossScope};
use interlingua_adapter_kit::model_options::DataDisplay;
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::pending::PendingKind;
use interlingua_core::run::Run;
use interlingua_core::{Extra, Json};

use crate::echo::{Echo, Thinking};
use crate::options::{InlineImages, Options, ToolItems};
use crate::serve::MountedRoute;

/// Notes the losses of the last turn.
pub(crate) fn note(run: &Run, extent: LossScope, echo: &Echo, shared: &MountedRoute, losses: &mut Losses) {
    for _ in 0..echo.hosted_tools {
        losses.lost(ContentKind::ToolDeclaration, "tools that Anthropic would run, or that have no schema");
    }
    contents::note(run, losses, |found| extent.fate(found.kind).or_else(|| fate(found, run, echo, shared)));
}

fn fate(found: &FoundContent<'_>, run: &Run, echo: &Echo, shared: &MountedRoute) -> ContentChange {
    use ContentKind as K;
    let options = &shared.options;
    match found.kind {
        K::Reasoning => match shared.thinking(echo.thinking) {
            Thinking::Shown => None,
            Thinking::Omitted => Some((Change::Lost, "the request wants no text of it")),
            Thinking::Hidden => Some((Change::Lost, "the request does not ask for it, or the route hides it")),
        },
        K::AgentCall | K::AgentOutput => match options.tool_items {
            ToolItems::Mcp => None,
            ToolItems::Hide => Some((Change::Lost, "hidden by the route's option tool_items")),
            ToolItems::Text => Some((Change::Changed, "shown as text")),
        },
        K::Approval | K::Question | K::Schema | K::Login if shared.refuses_questions() => {
            Some((Change::Lost, "refused by the route's option approvals"))
        }
        K::Approval | K::Question | K::Schema | K::Login => Some((Change::Changed, asked_as(found.kind, echo, shared))),
        K::ProtocolEvent => Some((Change::Lost, "events of another protocol")),
        K::ImageOut | K::VideoOut | K::AudioOut | K::FileOut => Some((Change::Changed, media_as(found, options))),
        K::DataOut => Some(if options.data == DataDisplay::Text {
            (Change::Changed, "shown as text")
        } else {
            (Change::Lost, "hidden by the route's option data")
        }),
        K::Annotation if !options.citations.0 => Some((Change::Lost, "hidden by the route's option citations")),
        K::Annotation if !has_urls(found) => Some((Change::Lost, "sources without a URL")),
        K::EndReason if !is_known_reason(run) => Some((Change::Changed, "sent as a stop reason of this protocol")),
        K::ErrorCode => Some((Change::Changed, "sent as an error type of this protocol")),
        _ => None,
    }
}

/// The form of media.
fn media_as(found: &FoundContent<'_>, options: &Options) -> &'static str {
    match (found.is_inline(), options.inline_images) {
        (false, _) => "shown as a link in the text",
        (true, InlineImages::Note) => "only its name and size are shown, in the text",
        (true, InlineImages::Markdown) if found.kind == ContentKind::ImageOut => "shown as a link in the text",
        (true, InlineImages::Markdown) => "shown as a link in the text if it is short, else by its name and size",
    }
}

fn asked_as(kind: ContentKind, echo: &Echo, shared: &MountedRoute) -> &'static str {
    let asker = shared.options.asker();
    let kind = if kind == ContentKind::Approval { PendingKind::Approval } else { PendingKind::Input };
    if asker.is_call(kind, &|name| echo.declares(name)) {
        "asked as a call of a function"
    } else {
        "asked as text with a marker"
    }
}

fn has_urls(found: &FoundContent<'_>) -> bool {
    let of = |fields: Option<&Json>| -> Vec<Extra> { fields.and_then(Json::decode).unwrap_or_default() };
    let metadata: Option<Extra> = found.message.and_then(|message| message.metadata.as_ref()?.decode());
    let own = of(found.slot.and_then(|slot| slot.extra.get("annotations")));
    let late = of(metadata.as_ref().and_then(|metadata| metadata.get("annotations")));
    let has_url = |fields: &Extra| fields.get("url").is_some() || fields.get("url_citation").is_some();
    own.iter().chain(&late).all(has_url)
}

/// Reasons that arrive as they are.
fn is_known_reason(run: &Run) -> bool {
    let known = ["max_tokens", "max_output_tokens", "pause_turn", "model_context_window_exceeded", "content_filter"];
    run.error().is_some_and(|error| known.contains(&error.code.to_ascii_lowercase().as_str()))
}
