//! The URIs of runs and of the parts of their answers.

use interlingua_core::RunId;

/// The beginning of the URI of every run.
pub(crate) const RUNS: &str = "interlingua://runs/";

/// The URI of a run.
pub(crate) fn run_uri(run: RunId) -> String {
    format!("{RUNS}{run}")
}

/// The URI of a content of a run's answer. The first one has the number 1.
pub(crate) fn part_uri(run: RunId, number: usize) -> String {
    format!("{RUNS}{run}/parts/{number}")
}
