//! Encodes questions to a person: approvals, questions and logins, for which this protocol has no form
//! (docs/human-in-the-loop.md#in-chat-protocols).

use std::sync::Arc;

use interlingua_adapter_kit::openai_error::ErrorObject;
use interlingua_core::Out;
use interlingua_core::answer::chat::{ApprovalForm, AskedItem, reason_line};
use interlingua_core::pending::{Pending, PendingKind};

use super::Encoder;
use super::answer::Call;
use super::fields::Field;

/// The message of a question that stands behind all messages of the run.
const AFTER_ALL: u32 = u32::MAX - 1;

impl Encoder {
    /// Asks items again, which the request did not decide. `reason`: in front of the question.
    pub(super) fn ask_again(
        &mut self,
        agent: &str,
        items: &[Pending],
        reason: Option<&str>,
        out: &mut Out,
    ) -> Option<ErrorObject<'static>> {
        let is_shown = self.echo.approvals != ApprovalForm::Refuse;
        if let Some(reason) = reason.filter(|_| is_shown) {
            self.write(Field::Content, (AFTER_ALL, 0), &reason_line(reason), out);
        }
        self.ask(agent, items, out)
    }

    /// Asks these items, or the first of them. `Some`: the route refuses to ask.
    pub(super) fn ask(&mut self, agent: &str, items: &[Pending], out: &mut Out) -> Option<ErrorObject<'static>> {
        let items = self.shared.limited(agent, items);
        let first = items.first()?;
        if self.echo.approvals == ApprovalForm::Refuse {
            return Some(refusal(first.kind));
        }

        let (echo, shared) = (self.echo.clone(), Arc::clone(&self.shared));
        let asker = shared.options.asker(echo.approvals);
        for asked in asker.ask(&items, &|name| echo.tool(name).is_some()) {
            match asked {
                AskedItem::Text(text) => self.write(Field::Content, (AFTER_ALL, 0), &text, out),
                AskedItem::Call { id, name, arguments } => {
                    let (id, name) = (id.to_owned(), name.to_owned());
                    self.show_call(Call { id, name, arguments: arguments.text().to_owned(), ..Call::default() }, out);
                }
            }
        }
        None
    }
}

fn refusal(kind: PendingKind) -> ErrorObject<'static> {
    let (code, message) = if kind == PendingKind::Approval {
        ("approval_required", "the agent asks for an approval, which this route does not show")
    } else {
        ("input_required", "the agent asks a question, which this route does not show")
    };
    ErrorObject {
        message: message.into(),
        kind: "invalid_request_error",
        param: None,
        code: Some(code),
        status: 400,
        may_retry: false,
    }
}
