//! Errors before a stream: the only place where a fault becomes an error of this protocol
//! (docs/protocols/ag-ui.md#errors).

use interlingua_core::answer::{NOT_TAKEN, NOT_WAITING, UNDECIDED};
use interlingua_core::{Fault, FaultKind, Out, Reply};
use serde::Serialize;

#[derive(Serialize)]
struct Body<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
}

/// Writes an error response.
pub(super) fn write(fault: &Fault, out: &mut Out) {
    out.status(fault.kind.status());
    out.fault_headers(fault);
    out.json(&Body { error: Detail { code: code(fault), message: message(fault), path: fault.field.as_deref() } });
}

/// The code of an error, here and in events.
pub(super) fn code(fault: &Fault) -> &str {
    let code = fault.code();
    // Agents send codes of their own; old ones put the whole message there.
    let is_identifier = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_identifier { code } else { fault.kind.code() }
}

/// The sentence of an error. Those of the gateway itself are for the log.
pub(super) fn message(fault: &Fault) -> &str {
    if fault.kind == FaultKind::Internal { "internal error in the gateway" } else { &fault.message }
}

/// The code of an answer to interrupts that cannot be taken, which is an error of the run. `None`: it is another fault.
/// `has_expired`: an interrupt of the request has.
pub(super) fn interrupt_code(fault: &Fault, has_answers: bool, has_expired: bool) -> Option<&'static str> {
    Some(match (fault.kind, fault.code.as_deref()) {
        (FaultKind::Waiting, _) if has_answers => "INTERRUPT_NOT_COVERED",
        (FaultKind::Waiting, _) => "INTERRUPT_PENDING",
        (_, Some(NOT_WAITING)) if has_expired => "INTERRUPT_EXPIRED",
        (_, Some(NOT_WAITING)) => "INTERRUPT_NOT_FOUND",
        (_, Some(UNDECIDED | NOT_TAKEN)) => "INTERRUPT_PAYLOAD_INVALID",
        _ => return None,
    })
}

/// A reply that no call of this protocol has.
pub(super) fn unexpected(reply: &Reply<'_>) -> Fault {
    Fault::unexpected_reply().with_detail(format!("{reply:?}"))
}

#[cfg(test)]
mod tests {
    use interlingua_core_testkit::fault_table;

    use super::*;

    #[test]
    fn each_kind_has_its_status_and_code() {
        let fault = |kind| Fault::new(kind, "why").with_field("messages[0].role");
        insta::assert_snapshot!(fault_table(fault, write));
    }
}
