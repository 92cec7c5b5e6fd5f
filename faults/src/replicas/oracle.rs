//! The checks of a scenario: the oracle's violations, counted. Not here: time limits, which each scenario has.

use anyhow::Result;
use interlingua_testing_support::cluster::{Oracle, RunView, Violation};

use super::cluster::Cluster;
use crate::check::Check;

/// The number of printed differences of each kind.
const MAX_SHOWN: usize = 3;

const NAMES: [(&str, Violation); 6] = [
    ("runs with a frame missing or double", Violation::Broken),
    ("runs without an end", Violation::Endless),
    ("completed runs with another text", Violation::WrongText),
    ("runs that gateways show otherwise than they were seen", Violation::Differing),
    ("other answers", Violation::WrongAnswer),
    ("executed twice", Violation::Twice),
];

/// Compares. All gateways must be there again.
pub(crate) fn check(cluster: &Cluster, all: &[RunView]) -> Result<Vec<Check>> {
    let oracle = Oracle::default();
    all.iter().for_each(|seen| oracle.check_view(seen));
    oracle.check_requests(cluster.agent.asked());
    oracle.compare_all(&cluster.addresses(), all)?;

    let known = all.iter().filter(|seen| seen.id.is_some());
    let completed = known.clone().filter(|seen| seen.is_completed()).count();
    let mut checks = vec![
        Check::info("runs", known.clone().count() as f64, ""),
        Check::info("… of them completed", completed as f64, ""),
        Check::info("… resumed elsewhere", known.filter(|seen| seen.resumed > 0).count() as f64, ""),
    ];
    for (name, violation) in NAMES {
        let found = oracle.found(violation);
        for line in found.iter().take(MAX_SHOWN) {
            eprintln!("{name}: {line}");
        }
        checks.push(Check::at_most(name, found.len() as f64, 0.0, ""));
    }
    Ok(checks)
}
