//! Conformance suites that are run by name.
//!
//! Not here: the run of a suite ([`super::conformance`]).

use anyhow::{Context, Result};

use crate::report::Report;
use crate::steps::build_gateway;
use crate::{conformance, suites};

/// Runs the named suites, including those that CI does not run. Without a name, lists all suites.
pub(crate) fn by_name(names: &[&str]) -> Result<bool> {
    if names.is_empty() {
        for suite in suites::ALL {
            println!("{:<16}{}", suite.name, if suite.in_ci { "" } else { "(not part of cargo xtask test)" });
        }
        return Ok(true);
    }

    let mut wanted = Vec::new();
    for name in names {
        let suite = suites::ALL.iter().find(|suite| suite.name == *name);
        wanted.push(suite.with_context(|| format!("unknown conformance suite {name:?}"))?);
    }

    let mut report = Report::new();
    if report.step("build", build_gateway) {
        for suite in wanted {
            report.step(suite.name, || conformance::run(suite));
        }
    }
    Ok(report.close())
}
