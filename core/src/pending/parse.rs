//! The question in the data of an `mcp_approval_request` (docs/human-in-the-loop.md#pending-items).

use crate::json::Json;
use crate::pending::{Decision, Pending, PendingKind, decision_word};

#[derive(serde::Deserialize)]
#[serde(default)]
#[derive(Default)]
struct RequestData {
    id: Option<String>,
    name: Option<String>,
    arguments: Option<Json>,
    server_label: Option<String>,
    interrupt: Option<Json>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Extension {
    kind: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    call_id: Option<String>,
    decisions: Option<Vec<String>>,
    response_schema: Option<Json>,
    expires_at: Option<String>,
    payload: Option<Json>,
}

impl Pending {
    /// Parses the data of an `mcp_approval_request`. `None` if it has no id.
    #[must_use]
    pub fn parse(data: &Json) -> Option<Self> {
        let request: RequestData = data.decode()?;
        let text = |json: Option<Json>| {
            json.filter(|json| !json.is_null())
                .map(|json| json.decode::<String>().unwrap_or_else(|| json.text().to_owned()))
        };

        let extension: Extension = request.interrupt.as_ref().and_then(Json::decode).unwrap_or_default();
        let payload = extension.payload.filter(|payload| !payload.is_null());
        let kind = match extension.kind.as_deref() {
            Some("input") => PendingKind::Input,
            Some("auth") => PendingKind::Auth,
            // Any other kind is treated as an approval, so that nothing runs without a decision.
            _ => PendingKind::Approval,
        };

        let words = extension.decisions.unwrap_or_default();
        let mut decisions: Vec<Decision> = words.iter().filter_map(|word| decision_word(word)).collect();
        if decisions.is_empty() && !words.is_empty() {
            // A list of unknown words is not the same as no list.
            decisions.push(Decision::Reject);
        }
        let mut message = extension.message;

        // A payload of a known form (docs/human-in-the-loop.md#interrupt-payloads) determines the question, as far as
        // the extension does not.
        if let Some((questions, _)) = payload.as_ref().map(crate::answer::payload::parse)
            && let Ok([question]) = <[_; 1]>::try_from(questions)
            && question.kind == kind
        {
            if decisions.is_empty() {
                decisions = question.decisions;
            }
            message = message.or(question.message);
        }

        Some(Self {
            id: request.id.filter(|id| !id.is_empty())?,
            kind,
            name: request.name.unwrap_or_default(),
            arguments: text(request.arguments).unwrap_or_default(),
            server_label: request.server_label,
            reason: extension.reason,
            message,
            call_id: extension.call_id,
            decisions,
            response_schema: extension.response_schema.filter(|schema| !schema.is_null()),
            expires_at: extension.expires_at,
            payload,
            extension: request.interrupt.filter(Json::is_object),
            request: None,
        })
    }
}
