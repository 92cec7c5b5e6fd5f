//! How faults are told before a stream begins: an HTTP status and `{"detail": …}`, as the runtime and the framework
//! under it do, with the stable code beside it (Agent API, sections 2 and 13.6).
//!
//! Not here: faults of a run that has begun; they are its end, told by a response frame.

use interlingua_core::call::{Call, Reply, RunView};
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::step::Step;
use interlingua_core::{Fault, FaultKind, Out, Request};
use serde::Serialize;

/// Status and body of a fault.
fn spelled(fault: &Fault) -> (u16, Refused<'_>) {
    use FaultKind as K;
    let kind = match fault.kind {
        K::Malformed => "json_invalid",
        K::Missing => "missing",
        K::WrongType => "type_error",
        K::Invalid | K::Exclusive | K::Unsupported => "value_error",
        _ => {
            return (fault.kind.status(), Refused { detail: Detail::Text(&fault.message), code: fault.code() });
        }
    };
    let first = Entry { kind, loc: location(fault.field.as_deref()), msg: &fault.message };
    let further = fault.violations.iter().filter(|(path, _)| fault.field.as_ref() != Some(path));
    let further = further.map(|(path, sentence)| Entry { kind, loc: location(Some(path)), msg: sentence });
    let detail = Detail::Entries(std::iter::once(first).chain(further).collect());
    (422, Refused { detail, code: fault.code() })
}

/// Writes a fault.
pub(crate) fn write(fault: &Fault, out: &mut Out) {
    let (status, body) = spelled(fault);
    out.status(status);
    if !fault.allow.is_empty() {
        out.header("allow", fault.allow.join(", "));
    }
    if let Some(after) = fault.retry_after {
        // Whole seconds, rounded up: asking too early costs a refusal more.
        out.header("retry-after", after.as_millis().div_ceil(1000).to_string());
    }
    if fault.kind == FaultKind::Unauthenticated {
        out.header("www-authenticate", "Bearer");
    }
    out.json(&body);
}

/// Writes that the session waits for answers first.
pub(crate) fn write_waiting(view: RunView<'_>, out: &mut Out) {
    let ids: Vec<&str> = view.pending.iter().map(|item| item.id.as_str()).collect();
    let detail = format!("the session waits for answers to {} first", ids.join(", "));
    let items = view.pending.iter().map(|item| Waited { id: &item.id, kind: item.kind, name: &item.name }).collect();
    out.status(FaultKind::Waiting.status());
    out.json(&Waiting {
        detail: &detail,
        code: FaultKind::Waiting.code(),
        pending: items,
        response_id: crate::wire::response_id(view.run().id),
    });
}

/// A reply no exchange of this adapter asks for.
pub(crate) fn unexpected(reply: &Reply<'_>) -> Fault {
    Fault::new(FaultKind::Internal, "the gateway answered another question").with_detail(format!("{reply:?}"))
}

/// `input[0].role` as `["body","input",0,"role"]`; `?after` as `["query","after"]`.
fn location(path: Option<&str>) -> Vec<Place<'_>> {
    let path = path.unwrap_or("");
    let (root, path) = path.strip_prefix('?').map_or(("body", path), |path| ("query", path));
    let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty());
    let steps = steps.map(|step| step.parse().map_or(Place::Name(step), Place::Index));
    std::iter::once(Place::Name(root)).chain(steps).collect()
}

#[derive(Serialize)]
struct Refused<'a> {
    detail: Detail<'a>,
    code: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Detail<'a> {
    Text(&'a str),
    Entries(Vec<Entry<'a>>),
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    loc: Vec<Place<'a>>,
    msg: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Place<'a> {
    Name(&'a str),
    Index(u32),
}

#[derive(Serialize)]
struct Waiting<'a> {
    detail: &'a str,
    code: &'static str,
    pending: Vec<Waited<'a>>,
    response_id: String,
}

#[derive(Serialize)]
struct Waited<'a> {
    id: &'a str,
    kind: interlingua_core::pending::PendingKind,
    name: &'a str,
}

/// Answers what no endpoint answers.
pub(crate) struct Fallback;

impl Exchange for Fallback {
    fn decode(&mut self, _: &Request<'_>) -> Result<Call, Fault> {
        Err(Fault::new(FaultKind::NoSuchPath, "nothing answers on this path"))
    }
    fn reply(&mut self, reply: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(unexpected(&reply))
    }
    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        write(fault, out);
    }
    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::Duration;

    use super::*;

    /// Documentation: every fault as a native client sees it.
    #[test]
    fn every_kind_of_fault_has_a_status_and_a_body() {
        let mut table = String::new();
        for kind in FaultKind::ALL {
            let mut fault = Fault::new(*kind, "what is wrong");
            if matches!(kind, FaultKind::Missing | FaultKind::WrongType | FaultKind::Invalid) {
                fault = fault.with_field("input[0].content[1].type");
            }
            let (status, body) = spelled(&fault);
            let body = serde_json::to_string(&body).expect("JSON");
            writeln!(table, "{kind:?}: {status} {body}").expect("memory");
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn headers_say_what_would_be_right() {
        let mut out = Out::new();
        let mut fault = Fault::new(FaultKind::MethodNotAllowed, "GET is not allowed here");
        fault.allow = vec!["POST", "DELETE"];
        fault.retry_after = Some(Duration::from_millis(1200));
        write(&fault, &mut out);
        assert_eq!(out.head.get("allow"), Some("POST, DELETE"));
        assert_eq!(out.head.get("retry-after"), Some("2"));
    }

    #[test]
    fn every_field_at_fault_is_named() {
        let mut fault = Fault::invalid("n", "must be between 1 and 5");
        fault.violations = vec![("n".into(), "told already".into()), ("input[3].role".into(), "unknown".into())];
        let body = serde_json::to_string(&spelled(&fault).1).expect("JSON");
        assert!(
            body.contains(r#""loc":["body","n"]"#) && body.contains(r#""loc":["body","input",3,"role"]"#),
            "{body}"
        );
        assert!(!body.contains("told already"), "{body}");
        let query = serde_json::to_string(&location(Some("?after"))).expect("JSON");
        assert_eq!(query, r#"["query","after"]"#);
    }
}
