//! Whether the conversation that a client sends back ends with what the session's latest run answered
//! (docs/protocols/chat-completions.md#conversations). Clients cut, edit and regenerate, so the answer is written again
//! as that client was shown it, and compared.

use std::sync::Arc;

use interlingua_core::answer::chat::{AskedItem, without_reason};
use interlingua_core::call::{HistoryJudge, RunView};

use super::MountedRoute;
use crate::decode::LastAnswer;
use crate::echo::Echo;
use crate::encode::Encoder;
use crate::encode::answer::Call;

/// Compares the assistant's last message with the answer of a run.
pub(crate) struct Judge {
    pub(crate) shared: Arc<MountedRoute>,
    /// The echo of the request, for runs that another protocol started.
    pub(crate) echo: Echo,
    pub(crate) last: Option<LastAnswer>,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").field("last", &self.last).finish_non_exhaustive()
    }
}

impl HistoryJudge for Judge {
    fn ends_with(&self, latest: RunView<'_>) -> bool {
        let Some(last) = &self.last else { return false };
        let echo = Echo::from_labels(&latest.info.labels).unwrap_or_else(|| self.echo.clone());
        if self.is_question(last, &echo, &latest) {
            return true;
        }

        // Reasoning is not compared: many clients drop it.
        let answer = Encoder::answer_of(Arc::clone(&self.shared), echo, latest);
        let same_calls = answer.calls.len() == last.calls.len()
            && answer.calls.iter().zip(&last.calls).all(|(shown, sent)| shown.is_same(sent));
        same_calls && answer.content.trim() == last.text.trim()
    }
}

impl Judge {
    /// Whether the message contains nothing but questions of the run: questions are repeated without the text before
    /// them.
    fn is_question(&self, last: &LastAnswer, echo: &Echo, latest: &RunView<'_>) -> bool {
        let asker = self.shared.options.asker(echo.approvals);
        let items = self.shared.limited(&latest.run().agent, &latest.run().pending());
        let asked: Vec<AskedItem<'_>> = items
            .iter()
            .flat_map(|item| asker.ask(std::slice::from_ref(item), &|name| echo.tool(name).is_some()))
            .collect();

        let text = without_reason(last.text.trim()).trim();
        if last.calls.is_empty() {
            return asked.iter().any(|asked| matches!(asked, AskedItem::Text(shown) if shown.trim() == text));
        }
        let is_asked = |call: &Call| {
            asked.iter().any(|asked| {
                let AskedItem::Call { id, name, arguments } = asked else { return false };
                let arguments = arguments.text().to_owned();
                let shown = Call { id: (*id).to_owned(), name: (*name).to_owned(), arguments, ..Call::default() };
                shown.is_same(call)
            })
        };
        text.is_empty() && last.calls.iter().all(is_asked)
    }
}
