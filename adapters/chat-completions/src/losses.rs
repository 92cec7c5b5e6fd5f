//! Content of a turn that an answer does not show, or shows in another form
//! (docs/protocols/chat-completions.md#what-clients-do-not-get).

use interlingua_adapter_kit::contents::{self, ContentChange, FoundContent, LossScope};
use interlingua_adapter_kit::model_options::DataDisplay;
use interlingua_core::answer::chat::ApprovalForm;
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core::run::Run;
use interlingua_core::{Extra, Json};

use crate::echo::Echo;
use crate::options::{InlineImages, Options, Reasoning, ToolItems};

/// Notes the losses of the last turn.
pub(crate) fn note(run: &Run, extent: LossScope, echo: &Echo, options: &Options, losses: &mut Losses) {
    contents::note(run, losses, |found| extent.fate(found.kind).or_else(|| fate(found, echo, options)));
}

fn fate(found: &FoundContent<'_>, echo: &Echo, options: &Options) -> ContentChange {
    use ContentKind as K;
    match found.kind {
        K::Structure => Some((Change::Changed, "the texts of several messages are joined")),
        K::Reasoning if options.reasoning == Reasoning::Hide => {
            Some((Change::Lost, "hidden by the route's option reasoning"))
        }
        K::AgentCall | K::AgentOutput if options.tool_items == ToolItems::Hide => {
            Some((Change::Lost, "clients would run the agent's calls: hidden by the route's option tool_items"))
        }
        K::AgentCall | K::AgentOutput
            if options.tool_items == ToolItems::Reasoning && options.reasoning == Reasoning::Hide =>
        {
            Some((Change::Lost, "hidden with the reasoning by the route's option reasoning"))
        }
        K::AgentCall | K::AgentOutput => Some((Change::Changed, "shown as a line of text")),
        K::Approval | K::Question | K::Schema | K::Login if echo.approvals == ApprovalForm::Refuse => {
            Some((Change::Lost, "refused by the route's option approvals"))
        }
        K::Approval | K::Question | K::Schema | K::Login => {
            Some((Change::Changed, "asked in words, or as a call of a function"))
        }
        K::ProtocolEvent => Some((Change::Lost, "events of another protocol")),
        K::ImageOut if found.is_inline() => match options.inline_images {
            InlineImages::Field => Some((Change::Changed, "shown in a field that few clients read")),
            InlineImages::Markdown => Some((Change::Changed, "shown as a link in the text")),
            InlineImages::Drop => Some((Change::Lost, "hidden by the route's option inline_images")),
        },
        K::AudioOut if found.is_inline() && echo.audio => None,
        K::AudioOut | K::VideoOut | K::FileOut if found.is_inline() => {
            Some((Change::Changed, "only its name and size are shown, in the text"))
        }
        K::ImageOut | K::AudioOut | K::VideoOut | K::FileOut => Some((Change::Changed, "shown as a link in the text")),
        K::DataOut => Some(if options.data == DataDisplay::Text {
            (Change::Changed, "shown as text")
        } else {
            (Change::Lost, "hidden by the route's option data")
        }),
        K::Annotation => has_others(found).then_some((Change::Lost, "notes other than citations of URLs")),
        _ => None,
    }
}

/// True if a text has notes that this protocol has no form for.
fn has_others(found: &FoundContent<'_>) -> bool {
    let list = |json: Option<&Json>| json.and_then(Json::decode::<Vec<Extra>>).unwrap_or_default();
    let metadata = found.message.and_then(|message| message.metadata.as_ref()).and_then(Json::decode::<Extra>);
    let own = list(found.slot.and_then(|slot| slot.extra.get("annotations")));
    let late = list(metadata.as_ref().and_then(|fields| fields.get("annotations")));
    let is_citation =
        |note: &Extra| note.get("type").and_then(Json::decode::<String>).as_deref() == Some("url_citation");
    !own.iter().chain(&late).all(is_citation)
}
