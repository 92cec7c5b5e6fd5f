//! The error table, encoded for each binding and version.

use std::fmt::Write as _;
use std::time::Duration;

use super::*;
use crate::dialect::Binding;

const BOTH: &[Generation] = &[Generation::V1, Generation::V03];

fn dialect(binding: Binding, generation: Generation) -> Dialect {
    Dialect { binding, generation }
}

fn all_formats(fault: &Fault, task: Option<&str>) -> String {
    let report = ErrorReport::new(fault, task, BOTH);
    let mut table = String::new();
    for (binding, generation) in [
        (Binding::JsonRpc, Generation::V1),
        (Binding::Rest, Generation::V1),
        (Binding::JsonRpc, Generation::V03),
        (Binding::Rest, Generation::V03),
    ] {
        let dialect = dialect(binding, generation);
        let body = match binding {
            Binding::JsonRpc => serde_json::to_string(&RpcError(&report, generation)),
            Binding::Rest => serde_json::to_string(&RestError(&report, dialect)),
        };
        let name = format!("{} {}", generation.as_str(), binding.as_str());
        let _ = writeln!(table, "  {name:<13} {} {}", report.http(dialect), body.expect("JSON"));
    }
    table
}

#[test]
fn every_fault_kind_maps_to_a_row() {
    let mut table = String::new();
    for kind in FaultKind::ALL {
        let fault = Fault::new(*kind, "what is in the way");
        let _ = writeln!(table, "{:?} is {:?}", kind, Problem::from_fault(&fault));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn every_row_is_encoded_in_four_formats() {
    let mut table = String::new();
    for problem in Problem::ALL {
        let mut fault = fault(problem, "what is in the way");
        if problem.fault_code().is_none() {
            // Rows without a code of their own are reached by fault kind alone.
            let kinds = FaultKind::ALL.iter().copied();
            let kind = kinds.into_iter().find(|kind| Problem::from_fault(&Fault::new(*kind, "")) == problem);
            fault = Fault::new(kind.expect("some kind has this row"), "what is in the way");
        }

        assert_eq!(Problem::from_fault(&fault), problem);
        let _ = writeln!(
            table,
            "{problem:?}\n{}",
            all_formats(&fault, Some("T9").filter(|_| problem == Problem::TaskNotFound))
        );
    }
    insta::assert_snapshot!(table);
}

#[test]
fn every_invalid_field_is_listed() {
    let mut fault = Fault::invalid("message.parts", "must have at least one element");
    fault.violations.push(("message.role".into(), "is required".into()));
    insta::assert_snapshot!(all_formats(&fault, None));
}

#[test]
fn some_rows_set_response_headers() {
    let header = |fault: &Fault, name: &str| {
        let mut out = Out::new();
        ErrorReport::new(fault, None, BOTH).headers(&mut out);
        out.head.get(name).map(str::to_owned)
    };
    let mut often = Fault::new(FaultKind::RateLimited, "too often");
    assert_eq!(header(&often, "retry-after").as_deref(), Some("1"));
    often.retry_after = Some(Duration::from_secs(7));
    assert_eq!(header(&often, "retry-after").as_deref(), Some("7"));

    let mut method = Fault::new(FaultKind::MethodNotAllowed, "not here");
    method.allow = vec!["GET", "POST"];
    assert_eq!(header(&method, "allow").as_deref(), Some("GET, POST"));
}
