//! The forms in which each client can write a decision.

use serde_json::{Value, json};

use super::cases::{ASKED, Case, EDITED, REASON, RESULT, payloads, words};
use super::speakers::AskForm;

/// An answer, in the form of one way.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// The data of an answer of the Agent API.
    Native(Value),
    /// An item of Responses, without the id.
    Item(Value),
    /// The output of the call that asked, of a data part, or of an interrupt.
    Payload(Value),
    /// Words of the user.
    Words(&'static str),
    /// An entry of `resume` of AG-UI without its id.
    Entry(Value),
    /// `forwardedProps.command.resume` of AG-UI.
    Command(Value),
    /// `response_type` and `args` of the REST service.
    Resume(&'static str, Value),
    /// The answer to a form of MCP.
    Elicited(Value),
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

impl AskForm {
    /// The answers that are tried, those that decide nothing first.
    pub(super) fn forms(self) -> Vec<(Case, Form)> {
        let as_payloads = || payloads().into_iter().map(|(case, payload)| (case, Form::Payload(payload)));
        let as_words = || words().into_iter().map(|(case, words)| (case, Form::Words(words)));
        // A new message answers nothing where answers have ids, and open items block it.
        let blocked = || ["yes", "approved", "perhaps"].map(|words| (Case::Nonsense, Form::Words(words)));
        match self {
            Self::AgentApi => blocked().into_iter().chain(native()).collect(),
            Self::Responses => blocked().into_iter().chain(items()).collect(),
            Self::ChatWords | Self::MessagesWords => as_words().collect(),
            Self::ChatCalls | Self::MessagesCalls => as_payloads().collect(),
            Self::A2a => as_payloads().chain(as_words()).collect(),
            Self::AgKit => blocked().into_iter().chain(as_payloads()).collect(),
            Self::AgUi => blocked().into_iter().chain(entries()).collect(),
            Self::Hitl => resumes(),
            Self::Mcp => elicited(),
        }
    }
}

fn native() -> Vec<(Case, Form)> {
    let with = |approve: bool, interrupt: Value| json!({ "approve": approve, "interrupt": interrupt });
    [
        (Case::Nonsense, json!({})),
        (Case::Nonsense, with(true, json!({ "decision": "perhaps" }))),
        (Case::Nonsense, with(true, json!({ "decision": "reject" }))),
        (Case::Nonsense, with(false, json!({ "decision": "accept" }))),
        (Case::Nonsense, with(true, json!({ "decision": "edit" }))),
        (Case::Edit, with(true, json!({ "decision": "accept", "arguments": EDITED }))),
        (Case::Edit, with(true, json!({ "arguments": EDITED }))),
        (Case::Edit, json!({ "approve": true, "arguments": EDITED })),
        (Case::Edit, with(true, json!({ "decision": "edit", "arguments": EDITED }))),
        (Case::Respond, with(false, json!({ "decision": "respond", "text": RESULT }))),
        (Case::AcceptSame, with(true, json!({ "decision": "accept", "arguments": ASKED }))),
        (Case::AcceptSame, json!({ "approve": true, "arguments": ASKED })),
        (Case::Accept, json!({ "approve": true })),
        (Case::Accept, with(true, json!({ "decision": "accept" }))),
        (Case::Cancel, with(false, json!({ "decision": "cancel" }))),
        (Case::Reject, json!({ "approve": false })),
        (Case::Reject, json!({ "approve": false, "reason": REASON })),
        (Case::Reject, with(false, json!({ "decision": "reject", "text": REASON }))),
    ]
    .into_iter()
    .map(|(case, data)| (case, Form::Native(data)))
    .collect()
}

fn items() -> Vec<(Case, Form)> {
    let answer = |fields: Value| {
        let mut item = fields;
        item["type"] = json!("mcp_approval_response");
        item
    };
    let output = |payload: Value| json!({ "type": "function_call_output", "output": payload.to_string() });
    [
        (Case::Nonsense, answer(json!({}))),
        (Case::Nonsense, answer(json!({ "approve": "yes" }))),
        (Case::Nonsense, output(json!({ "decision": "perhaps" }))),
        (Case::Edit, output(json!({ "approved": true, "arguments": json(EDITED) }))),
        (Case::Edit, answer(json!({ "approve": true, "arguments": json(EDITED) }))),
        (Case::Accept, answer(json!({ "approve": true }))),
        (Case::Reject, answer(json!({ "approve": false }))),
        (Case::Reject, answer(json!({ "approve": false, "reason": REASON }))),
    ]
    .into_iter()
    .map(|(case, item)| (case, Form::Item(item)))
    .collect()
}

fn entries() -> Vec<(Case, Form)> {
    let resolved = |payload: &Value| json!({ "status": "resolved", "payload": payload });
    let mut forms = vec![
        (Case::Nonsense, Form::Entry(json!({ "status": "resolved" }))),
        (Case::Nonsense, Form::Entry(json!({ "status": "perhaps", "payload": { "approved": true } }))),
    ];
    for (case, payload) in payloads() {
        forms.push((case, Form::Entry(resolved(&payload))));
        forms.push((case, Form::Command(payload)));
    }
    forms.push((Case::Cancel, Form::Entry(json!({ "status": "cancelled" }))));
    forms.push((Case::Reject, Form::Entry(resolved(&json!(false)))));
    forms
}

fn resumes() -> Vec<(Case, Form)> {
    let edited = json(EDITED);
    vec![
        (Case::Nonsense, Form::Resume("perhaps", Value::Null)),
        (Case::Nonsense, Form::Resume("edit", Value::Null)),
        (Case::Nonsense, Form::Resume("response", Value::Null)),
        (Case::Edit, Form::Resume("accept", json!({ "args": edited }))),
        (Case::Edit, Form::Resume("edit", json!({ "args": edited }))),
        (Case::Edit, Form::Resume("edit", json!({ "edited_args": edited }))),
        (Case::Respond, Form::Resume("response", json!({ "args": RESULT }))),
        (Case::AcceptSame, Form::Resume("accept", json!({ "args": json(ASKED) }))),
        (Case::Accept, Form::Resume("accept", Value::Null)),
        (Case::Accept, Form::Resume("approve", Value::Null)),
        (Case::Cancel, Form::Resume("ignore", Value::Null)),
        (Case::Reject, Form::Resume("reject", Value::Null)),
        (Case::Reject, Form::Resume("reject", json!({ "message": REASON }))),
    ]
}

fn elicited() -> Vec<(Case, Form)> {
    let filled = |content: Value| json!({ "action": "accept", "content": content });
    [
        (Case::Nonsense, json!({ "action": "accept" })),
        (Case::Nonsense, json!({ "action": "perhaps", "content": { "decision": "accept" } })),
        (Case::Nonsense, filled(json!({}))),
        (Case::Nonsense, filled(json!({ "decision": "perhaps" }))),
        (Case::Nonsense, filled(json!({ "decision": "edit" }))),
        (Case::Nonsense, filled(json!({ "decision": "edit", "arguments": "none" }))),
        (Case::Nonsense, filled(json!({ "decision": "respond" }))),
        (Case::Nonsense, filled(json!({ "decision": true }))),
        (Case::Nonsense, filled(json!({ "approved": true, "text": "yes" }))),
        (Case::Nonsense, json!({ "action": "cancel" })),
        (Case::Edit, filled(json!({ "decision": "edit", "arguments": EDITED }))),
        (Case::Edit, filled(json!({ "decision": "edit", "arguments": json(EDITED), "text": "less" }))),
        (Case::Edit, filled(json!({ "decision": "accept", "arguments": EDITED }))),
        (Case::Respond, filled(json!({ "decision": "respond", "text": RESULT }))),
        (Case::AcceptSame, filled(json!({ "decision": "accept", "arguments": ASKED }))),
        (Case::Accept, filled(json!({ "decision": "accept" }))),
        (Case::Accept, filled(json!({ "decision": "accept", "arguments": "", "text": "" }))),
        (Case::Reject, json!({ "action": "decline" })),
        (Case::Reject, json!({ "action": "decline", "content": { "decision": "accept" } })),
        (Case::Reject, filled(json!({ "decision": "reject" }))),
        (Case::Reject, filled(json!({ "decision": "reject", "text": REASON }))),
    ]
    .into_iter()
    .map(|(case, answer)| (case, Form::Elicited(answer)))
    .collect()
}
