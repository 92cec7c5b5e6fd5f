//! Answers to a question about a call, with what each of them decides.

use serde_json::{Value, json};

/// The tool that an agent wants to run.
pub(super) const TOOL: &str = "order";
/// The arguments of the call as its agent asks for it.
pub(super) const ASKED: &str = r#"{"what":"40 tons of steel"}"#;
/// Other arguments.
pub(super) const EDITED: &str = r#"{"what":"40 kg of steel"}"#;
/// The reason of a rejection, with words that a careless reader takes for a yes.
pub(super) const REASON: &str = "No, because yes would be approved by no one";
/// A text in place of the result, with such words as well.
pub(super) const RESULT: &str = "yes, accept what is there already";

/// The decision that an answer expresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Case {
    Accept,
    /// Accepts, and repeats the arguments.
    AcceptSame,
    /// New arguments, with the word for it or beside an acceptance.
    Edit,
    Respond,
    Reject,
    Cancel,
    /// No decision, or two that contradict each other.
    Nonsense,
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Answers as JSON, in all shapes that `docs/human-in-the-loop.md` names.
pub(super) fn payloads() -> Vec<(Case, Value)> {
    let (asked, edited) = (json(ASKED), json(EDITED));
    let action = |args: &Value| json!({ "action": TOOL, "args": args });
    vec![
        // Nothing is decided: the item has to stay open, so these are tried first.
        (Case::Nonsense, json!({})),
        (Case::Nonsense, json!({ "decision": "perhaps" })),
        (Case::Nonsense, json!({ "approved": "perhaps" })),
        (Case::Nonsense, json!({ "type": "edit" })),
        (Case::Nonsense, json!({ "decision": "edit" })),
        (Case::Nonsense, json!({ "what": "40 kg of steel" })),
        (Case::Nonsense, json!({ "approved": true, "decision": "reject" })),
        (Case::Nonsense, json!({ "approved": false, "decision": "accept" })),
        (Case::Nonsense, json!({ "decisions": [{ "type": "approve" }, { "type": "reject" }] })),
        (Case::Edit, json!({ "approved": true, "arguments": edited })),
        (Case::Edit, json!({ "approved": true, "editedArgs": edited })),
        (Case::Edit, json!({ "approve": true, "args": edited })),
        (Case::Edit, json!({ "decision": "accept", "args": edited })),
        (Case::Edit, json!({ "decision": "approve", "arguments": edited })),
        (Case::Edit, json!({ "type": "accept", "args": action(&edited) })),
        (Case::Edit, json!({ "decision": "edit", "args": edited })),
        (Case::Edit, json!({ "type": "edit", "args": action(&edited) })),
        (Case::Edit, json!({ "decisions": [{ "type": "edit", "edited_action": { "name": TOOL, "args": edited } }] })),
        (Case::Respond, json!({ "decision": "respond", "text": RESULT })),
        (Case::Respond, json!({ "type": "response", "args": RESULT })),
        (Case::AcceptSame, json!({ "approved": true, "arguments": asked })),
        (Case::AcceptSame, json!({ "approved": true, "editedArgs": asked })),
        (Case::AcceptSame, json!({ "decision": "accept", "args": asked })),
        (Case::AcceptSame, json!({ "type": "accept", "args": action(&asked) })),
        (Case::Accept, json!({ "approved": true })),
        (Case::Accept, json!({ "confirmed": true })),
        (Case::Accept, json!({ "decision": "accept" })),
        (Case::Accept, json!({ "type": "accept" })),
        (Case::Accept, json!({ "decisions": [{ "type": "approve" }] })),
        (Case::Cancel, json!({ "decision": "cancel" })),
        (Case::Cancel, json!({ "type": "ignore" })),
        (Case::Reject, json!({ "approved": false })),
        (Case::Reject, json!({ "approve": false, "reason": REASON })),
        (Case::Reject, json!({ "confirmed": false })),
        (Case::Reject, json!({ "decision": "reject", "text": REASON })),
        (Case::Reject, json!({ "type": "reject", "args": REASON })),
        (Case::Reject, json!({ "decisions": [{ "type": "reject", "message": REASON }] })),
    ]
}

/// Answers as words of a person.
pub(super) fn words() -> Vec<(Case, &'static str)> {
    vec![
        (Case::Nonsense, "perhaps"),
        (Case::Nonsense, REASON),
        (Case::Nonsense, "yes, but only 40 kg"),
        (Case::Edit, r#"{"approved":true,"arguments":{"what":"40 kg of steel"}}"#),
        (Case::Accept, "yes"),
        (Case::Accept, "Approve"),
        (Case::Cancel, "cancel"),
        (Case::Reject, "no"),
        (Case::Reject, "reject"),
    ]
}
