//! Refusals: the one place where a fault becomes the service's own words (section 7, error cases).

use interlingua_core::exchange::{Flow, Next};
use interlingua_core::{Call, Exchange, Fault, FaultKind, Out, Reply, Request, Step};

use crate::wire;

/// The status of a refusal of what was asked. Bodies are refused in [`write_bad_fields`].
const fn status(kind: FaultKind) -> u16 {
    match kind {
        // What is wrong with the fields of a request, wherever that is found out.
        FaultKind::Malformed | FaultKind::Missing | FaultKind::WrongType => 422,
        kind => kind.status(),
    }
}

/// Writes a refusal.
pub(crate) fn write(fault: &Fault, out: &mut Out) {
    write_as(status(fault.kind), fault, out);
}

/// Writes a refusal with a status of the caller's choice.
pub(crate) fn write_as(status: u16, fault: &Fault, out: &mut Out) {
    out.status(status);
    if let Some(wait) = fault.retry_after {
        out.header("retry-after", (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).to_string());
    }
    if fault.kind == FaultKind::MethodNotAllowed {
        out.header("allow", fault.allow.join(", "));
    }
    let detail = match fault.kind {
        // What clients of the original's framework compare with.
        FaultKind::NoSuchPath => "Not Found",
        FaultKind::MethodNotAllowed => "Method Not Allowed",
        _ => &fault.message,
    };
    out.json(&wire::Refusal { detail });
}

/// Writes what is wrong with a body.
pub(crate) fn write_bad_fields(bad: &[wire::BadField], out: &mut Out) {
    out.status(422);
    out.json(&wire::BadFields { detail: bad });
}

/// The engine answered something else than was asked.
pub(crate) fn unexpected() -> Fault {
    Fault::new(FaultKind::Internal, "an answer of another kind than was asked for")
}

/// Answers what no endpoint answers.
pub(crate) struct Fallback;

impl Exchange for Fallback {
    fn decode(&mut self, _: &Request<'_>) -> Result<Call, Fault> {
        Err(Fault::new(FaultKind::NoSuchPath, "nothing answers on this path"))
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(unexpected())
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
    use super::*;

    #[test]
    fn each_kind_has_its_status_and_sentence() {
        let mut table = String::new();
        for kind in FaultKind::ALL {
            let mut out = Out::new();
            write(&Fault::new(*kind, "why"), &mut out);
            table.push_str(&format!("{kind:?}: {} {}\n", out.head.status, String::from_utf8_lossy(&out.body)));
        }
        insta::assert_snapshot!(table);
    }
}
