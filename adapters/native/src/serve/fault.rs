//! Faults before the start of a stream: an HTTP status and `{"detail": …}`, as in the runtime and its web framework,
//! plus the stable code (docs/protocols/agent-api.md#transport, docs/protocols/agent-api.md#writer-6).
//!
//! Not here: faults of a run that has started. They are its end, in a response frame.

use interlingua_adapter_kit::fallback::ErrorWriter;
use interlingua_core::call::{Reply, RunView};
use interlingua_core::{Fault, FaultKind, Out, Request};
use serde::Serialize;

fn status_and_body(fault: &Fault) -> (u16, ErrorBody<'_>) {
    use FaultKind as K;
    let kind = match fault.kind {
        K::Malformed => "json_invalid",
        K::Missing => "missing",
        K::WrongType => "type_error",
        K::Invalid | K::Exclusive | K::Unsupported => "value_error",
        _ => {
            return (fault.kind.status(), ErrorBody { detail: Detail::Text(&fault.message), code: fault.code() });
        }
    };

    let first = Entry { kind, loc: location(fault.field.as_deref()), msg: &fault.message };
    let further = fault.violations.iter().filter(|(path, _)| fault.field.as_ref() != Some(path));
    let further = further.map(|(path, message)| Entry { kind, loc: location(Some(path)), msg: message });

    let detail = Detail::Entries(std::iter::once(first).chain(further).collect());
    (422, ErrorBody { detail, code: fault.code() })
}

pub(crate) fn write(fault: &Fault, out: &mut Out) {
    let (status, body) = status_and_body(fault);
    out.status(status);
    out.fault_headers(fault);
    out.json(&body);
}

/// Writes the refusal of a request in a session that waits for answers.
pub(crate) fn write_waiting(view: RunView<'_>, out: &mut Out) {
    let ids: Vec<&str> = view.pending.iter().map(|item| item.id.as_str()).collect();
    let detail = format!("the session waits for answers to {} first", ids.join(", "));
    let items = view.pending.iter().map(|item| PendingItem { id: &item.id, kind: item.kind, name: &item.name });
    let items = items.collect();

    out.status(FaultKind::Waiting.status());
    out.json(&Waiting {
        detail: &detail,
        code: FaultKind::Waiting.code(),
        pending: items,
        response_id: crate::wire::response_id(view.run().id),
    });
}

/// The fault for a reply that no exchange of this adapter expects.
pub(crate) fn unexpected(reply: &Reply<'_>) -> Fault {
    Fault::unexpected_reply().with_detail(format!("{reply:?}"))
}

/// `input[0].role` as `["body","input",0,"role"]`; `?after` as `["query","after"]`.
fn location(path: Option<&str>) -> Vec<Segment<'_>> {
    let path = path.unwrap_or("");
    let (root, path) = path.strip_prefix('?').map_or(("body", path), |path| ("query", path));

    let names = path.split(['.', '[']).map(|name| name.trim_end_matches(']')).filter(|name| !name.is_empty());
    let segments = names.map(|name| name.parse().map_or(Segment::Name(name), Segment::Index));
    std::iter::once(Segment::Name(root)).chain(segments).collect()
}

#[derive(Serialize)]
struct ErrorBody<'a> {
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
    loc: Vec<Segment<'a>>,
    msg: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Segment<'a> {
    Name(&'a str),
    Index(u32),
}

#[derive(Serialize)]
struct Waiting<'a> {
    detail: &'a str,
    code: &'static str,
    pending: Vec<PendingItem<'a>>,
    response_id: String,
}

#[derive(Serialize)]
struct PendingItem<'a> {
    id: &'a str,
    kind: interlingua_core::pending::PendingKind,
    name: &'a str,
}

/// Writes errors of requests that match no endpoint.
#[derive(Default)]
pub(crate) struct Errors;

impl ErrorWriter for Errors {
    fn no_such_path(_: &Request<'_>) -> String {
        "nothing answers on this path".to_owned()
    }

    fn write(&self, fault: &Fault, out: &mut Out) {
        write(fault, out);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::Duration;

    use super::*;

    /// The snapshot is documentation: every fault as a client sees it.
    #[test]
    fn every_kind_of_fault_has_a_status_and_a_body() {
        let mut table = String::new();
        for kind in FaultKind::ALL {
            let mut fault = Fault::new(*kind, "what is wrong");
            if matches!(kind, FaultKind::Missing | FaultKind::WrongType | FaultKind::Invalid) {
                fault = fault.with_field("input[0].content[1].type");
            }
            let (status, body) = status_and_body(&fault);
            let body = serde_json::to_string(&body).expect("JSON");
            writeln!(table, "{kind:?}: {status} {body}").expect("memory");
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn headers_name_the_allowed_methods_and_the_time_to_retry() {
        let mut out = Out::new();
        let mut fault = Fault::new(FaultKind::MethodNotAllowed, "GET is not allowed here");
        fault.allow = vec!["POST", "DELETE"];
        fault.retry_after = Some(Duration::from_millis(1200));
        write(&fault, &mut out);
        assert_eq!(out.head.get("allow"), Some("POST, DELETE"));
        assert_eq!(out.head.get("retry-after"), Some("2"));
    }

    #[test]
    fn every_invalid_field_is_named() {
        let mut fault = Fault::invalid("n", "must be between 1 and 5");
        fault.violations = vec![("n".into(), "named already".into()), ("input[3].role".into(), "unknown".into())];
        let body = serde_json::to_string(&status_and_body(&fault).1).expect("JSON");
        assert!(
            body.contains(r#""loc":["body","n"]"#) && body.contains(r#""loc":["body","input",3,"role"]"#),
            "{body}"
        );
        assert!(!body.contains("named already"), "{body}");
        let query = serde_json::to_string(&location(Some("?after"))).expect("JSON");
        assert_eq!(query, r#"["query","after"]"#);
    }
}
