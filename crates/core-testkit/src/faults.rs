//! The mapping table of an adapter's errors.

use std::fmt::Write as _;

use interlingua_core::{Fault, FaultKind, Out};

/// A line for each kind of fault: its status and its body, as `write` writes it.
#[must_use]
pub fn fault_table(fault_of: impl Fn(FaultKind) -> Fault, write: impl Fn(&Fault, &mut Out)) -> String {
    let mut table = String::new();
    for kind in FaultKind::ALL {
        let mut out = Out::new();
        write(&fault_of(*kind), &mut out);
        let body = String::from_utf8_lossy(&out.body);
        writeln!(table, "{kind:?}: {} {body}", out.head.status).expect("a text takes everything");
    }
    table
}
