//! Error responses: the only place where a fault is converted to the protocol's format
//! (docs/protocols/ag-kit.md#errors).

use interlingua_core::answer::{NOT_TAKEN, NOT_WAITING, UNDECIDED};
use interlingua_core::out::Head;
use interlingua_core::{Fault, Out};

use crate::wire;

/// The status of an error before the stream. `None`: the error is sent as a stream.
fn status(fault: &Fault) -> Option<u16> {
    match fault.code.as_deref() {
        // An invalid answer leaves the interrupt open; the protocol reports that in the stream.
        Some(UNDECIDED | NOT_TAKEN) => None,
        Some(NOT_WAITING) => Some(409),
        _ => Some(fault.kind.status()),
    }
}

/// The error code: the fault's code in lower case.
fn code(fault: &Fault) -> String {
    let lower = fault.code().to_ascii_lowercase();
    // Agents send codes of their own; old ones put the whole message there.
    let is_identifier =
        |code: &str| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_identifier(&lower) { lower } else { fault.kind.code().to_ascii_lowercase() }
}

/// Sets the headers of a stream. Proxies must neither buffer nor change it.
pub(crate) fn stream_head(head: &mut Head) {
    head.set_event_stream();
    head.set("cache-control", "no-cache, no-transform");
}

/// Writes an error response.
pub(crate) fn fail(fault: &Fault, out: &mut Out) {
    let Some(status) = status(fault) else {
        stream_head(&mut out.head);
        out.status(200);
        return interrupt(fault, out);
    };

    out.status(status);
    out.fault_headers(fault);
    out.json(&wire::ErrorBody {
        error: wire::ErrorDetail { code: code(fault), message: &fault.message, path: fault.field.as_deref() },
    });
}

/// Ends a stream that has started.
pub(crate) fn interrupt(fault: &Fault, out: &mut Out) {
    wire::Event::Error { error: &fault.message }.write(out);
    wire::done(out);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use interlingua_core::FaultKind;
    use interlingua_core_testkit::fault_table;

    use super::*;

    #[test]
    fn each_kind_has_its_status_and_code() {
        let fault = |kind| Fault::new(kind, "why").with_field("messages[0].role");
        insta::assert_snapshot!(fault_table(fault, fail));
    }

    #[test]
    fn an_answer_without_a_decision_is_reported_in_a_stream() {
        let mut out = Out::new();
        fail(&Fault::new(FaultKind::Invalid, "the answer decides nothing").with_code(UNDECIDED), &mut out);
        assert_eq!((out.head.status, out.head.get("content-type")), (200, Some("text/event-stream; charset=utf-8")));
        let body = "data: {\"type\":\"error\",\"error\":\"the answer decides nothing\"}\n\ndata: [DONE]\n\n";
        assert_eq!(out.body, body.as_bytes());
    }

    #[test]
    fn rate_limits_have_retry_after_and_wrong_methods_have_allow() {
        let mut out = Out::new();
        let mut fault =
            Fault::new(FaultKind::UpstreamRateLimited, "the agent is rate limited").with_code("what? a sentence");
        fault.retry_after = Some(Duration::from_millis(1_200));
        fail(&fault, &mut out);
        assert_eq!((out.head.status, out.head.get("retry-after")), (429, Some("2")));
        assert_eq!(
            out.body,
            br#"{"error":{"code":"upstream_rate_limited","message":"the agent is rate limited"}}"#[..]
        );
        let mut out = Out::new();
        let mut fault = Fault::new(FaultKind::MethodNotAllowed, "only POST");

        fault.allow = vec!["POST", "OPTIONS"];
        fail(&fault, &mut out);
        assert_eq!((out.head.status, out.head.get("allow")), (405, Some("POST, OPTIONS")));
    }
}
