//! The cargo steps: formatting, lints, builds, tests, licences, and which steps each command runs. Not here:
//! conformance suites (`conformance`).

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::report::{Outcome, Report};
use crate::suites::Suite;
use crate::{book, conformance, faults, fuzz, matrix, process, root, suites, target, tools, vendor};

const MINUTE: Duration = Duration::from_secs(60);

/// Longer than any build on two cores.
const BUILD_LIMIT: Duration = MINUTE.saturating_mul(45);
const TESTS_LIMIT: Duration = MINUTE.saturating_mul(45);

/// Conformance suites that run at the same time.
const SUITES_AT_ONCE: usize = 2;

type Step = (&'static str, fn() -> Result<Outcome>);

/// The steps before the conformance suites, cheapest first.
const STEPS: &[Step] = &[
    ("fmt", fmt),
    ("clippy", clippy),
    ("alone", alone),
    ("build", build),
    ("tests", tests),
    ("replicas", replicas),
    ("doctests", doctests),
    ("deny", deny),
    ("book", book::build),
];

/// The further steps of `test --all`, for which CI has no time or no network.
const MORE_STEPS: &[Step] = &[
    ("fuzz-targets", fuzz_targets),
    ("replicas-all", || replicas_on("hub")),
    ("matrix", || succeeded(matrix::run(&[])?)),
    ("replicas-postgres", replicas_on_postgres),
    ("faults", || succeeded(faults::run(&[])?)),
    ("fuzz", || succeeded(fuzz::run(&[])?)),
    ("advisories", advisories),
    ("vendor", || succeeded(vendor::run(&[])?)),
];

/// The result of a command that prints its own report.
fn succeeded(success: bool) -> Result<Outcome> {
    if success { Ok(Outcome::passed()) } else { bail!("see its own report above") }
}

/// Everything there is: all steps and all suites.
pub(crate) fn test_all() -> Result<bool> {
    let mut report = Report::new();
    let mut built = false;
    for (name, step) in STEPS {
        let passed = report.step(name, step);
        built |= *name == "build" && passed;
    }
    run_suites(&mut report, suites::ALL.iter().collect(), built);
    for (name, step) in MORE_STEPS {
        report.step(name, step);
    }
    Ok(report.close())
}

fn run_suite(suite: &Suite, is_built: bool) -> Result<Outcome> {
    if !is_built {
        bail!("the gateway was not built");
    }
    conformance::run(suite)
}

/// Everything CI runs, or the named steps and suites of it.
pub(crate) fn test(only: &[&str]) -> Result<bool> {
    let known = || STEPS.iter().map(|(name, _)| *name).chain(suites::ALL.iter().map(|suite| suite.name));
    if let Some(unknown) = only.iter().find(|wanted| !known().any(|name| name == **wanted)) {
        bail!("unknown step {unknown:?}, the steps are {}", known().collect::<Vec<_>>().join(", "));
    }

    let wanted = |name: &str| only.is_empty() || only.contains(&name);
    let mut report = Report::new();
    let mut built = None;
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        let passed = report.step(name, step);
        if *name == "build" {
            built = Some(passed);
        }
    }

    let runs = |suite: &&Suite| if only.is_empty() { suite.in_ci } else { wanted(suite.name) };
    let selected: Vec<&Suite> = suites::ALL.iter().filter(runs).collect();
    if !selected.is_empty() {
        // A suite that is selected alone builds the gateway first.
        let built = built.unwrap_or_else(|| report.step("build", build_gateway));
        run_suites(&mut report, selected, built);
    }
    Ok(report.close())
}

/// Runs suites, two at once: they wait for imports, time limits and each other's processes more than they compute.
/// Those with a browser run alone, since they measure what a person would see.
fn run_suites(report: &mut Report, selected: Vec<&Suite>, is_built: bool) {
    let (browser, others): (Vec<_>, Vec<_>) =
        selected.into_iter().partition(|suite| matches!(suite.kind, suites::Kind::Browser));
    let steps = others.into_iter().map(|suite| (suite.name, move || run_suite(suite, is_built)));
    report.steps_at_once(SUITES_AT_ONCE, steps.collect());
    for suite in browser {
        report.step(suite.name, || run_suite(suite, is_built));
    }
}

/// Everything except the conformance suites.
pub(crate) fn check() -> Result<bool> {
    let mut report = Report::new();
    for (name, step) in STEPS {
        report.step(name, step);
    }
    Ok(report.close())
}

/// Builds the documentation and checks its links.
pub(crate) fn book() -> Result<bool> {
    let mut report = Report::new();
    report.step("book", book::build);
    Ok(report.close())
}

/// Known vulnerabilities and yanked crates. Needs the network for the advisory database, so it is not part of `test`.
pub(crate) fn audit() -> Result<bool> {
    let mut report = Report::new();
    report.step("advisories", advisories);
    Ok(report.close())
}

fn advisories() -> Result<Outcome> {
    let deny = tools::CARGO_DENY.installed()?;
    process::run(Command::new(deny).current_dir(root()).args(["check", "advisories"]), 5 * MINUTE)?;
    Ok(Outcome::passed())
}

fn cargo(arguments: &[&str], limit: Duration) -> Result<Outcome> {
    process::run(Command::new("cargo").current_dir(root()).args(arguments), limit)?;
    Ok(Outcome::passed())
}

fn fmt() -> Result<Outcome> {
    cargo(&["fmt", "--all", "--check"], MINUTE)
}

fn clippy() -> Result<Outcome> {
    cargo(
        &["clippy", "--locked", "--workspace", "--all-targets", "--profile", "ci", "--", "-D", "warnings"],
        BUILD_LIMIT,
    )
}

/// Compiles core and every adapter alone, since each manifest must list all its own dependencies and features. Not the
/// crates of the gateway: only the root package uses them.
fn alone() -> Result<Outcome> {
    let mut manifests = vec![root().join("core/Cargo.toml")];
    for adapter in std::fs::read_dir(root().join("adapters"))? {
        manifests.push(adapter?.path().join("Cargo.toml"));
    }

    manifests.sort();
    for manifest in &manifests {
        let manifest = manifest.to_str().context("a path of the repository is not UTF-8")?;
        cargo(&["check", "--quiet", "--locked", "--profile", "ci", "--manifest-path", manifest], BUILD_LIMIT)?;
    }
    Ok(Outcome::Passed(format!("{} packages", manifests.len())))
}

/// Compiles the gateway and all tests, in the profile of CI.
fn build() -> Result<Outcome> {
    if has_nextest() {
        return cargo(&["nextest", "run", "--no-run", "--locked", "--workspace", "--cargo-profile", "ci"], BUILD_LIMIT);
    }
    cargo(&["test", "--no-run", "--locked", "--workspace", "--all-targets", "--profile", "ci"], BUILD_LIMIT)
}

/// Builds only the gateway, for suites that are run by name.
pub(crate) fn build_gateway() -> Result<Outcome> {
    let package = ["--package", "interlingua", "--bin", "interlingua"];
    cargo(&[&["build", "--locked", "--profile", "ci"][..], &package[..]].concat(), BUILD_LIMIT)
}

fn has_nextest() -> bool {
    let nextest = Command::new("cargo").args(["nextest", "--version"]).output();
    nextest.is_ok_and(|output| output.status.success())
}

/// Runs all tests, with nextest if it is installed: faster, and each test in its own process.
fn tests() -> Result<Outcome> {
    if has_nextest() {
        let run = ["nextest", "run", "--locked", "--workspace", "--cargo-profile", "ci", "--no-fail-fast"];
        cargo(&run, TESTS_LIMIT)?;
        return Ok(Outcome::Passed("cargo nextest".to_owned()));
    }
    cargo(&["test", "--locked", "--workspace", "--all-targets", "--profile", "ci", "--no-fail-fast"], TESTS_LIMIT)?;
    Ok(Outcome::Passed("cargo test, since cargo-nextest is not installed".to_owned()))
}

/// Runs the tests of runs once more with each request at the other one of two gateways that share a store: what holds
/// for one gateway holds for several. `.config/nextest.toml` selects them.
fn replicas() -> Result<Outcome> {
    if !has_nextest() {
        return replicas_on("hub");
    }
    let mut run = Command::new("cargo");
    run.current_dir(root()).env(REPLICAS, "hub");
    // Of the whole workspace, as the step before: built with the same features, nothing is compiled again.
    run.args(["nextest", "run", "--locked", "--workspace", "--cargo-profile", "ci"]);
    process::run(run.args(["--profile", "replicas", "--no-fail-fast"]), TESTS_LIMIT)?;
    Ok(Outcome::passed())
}

/// All tests of the running gateway at two gateways in turn, with a PostgreSQL database for each pair of gateways.
fn replicas_on_postgres() -> Result<Outcome> {
    replicas_on("postgres")
}

/// Tests get two gateways on this store instead of one in memory.
const REPLICAS: &str = "INTERLINGUA_TEST_REPLICAS";

fn replicas_on(store: &str) -> Result<Outcome> {
    let mut test = Command::new("cargo");
    test.current_dir(root()).env(REPLICAS, store);
    test.args(["test", "--locked", "--workspace", "--test", "behaviour", "--profile", "ci", "--no-fail-fast"]);
    // As many at once as in the profile of nextest.
    test.args(["--", "--test-threads", "4"]);
    process::run(&mut test, TESTS_LIMIT)?;
    Ok(Outcome::passed())
}

/// Runs the doctests, which nextest does not support.
fn doctests() -> Result<Outcome> {
    cargo(&["test", "--locked", "--workspace", "--doc", "--profile", "ci", "--no-fail-fast"], TESTS_LIMIT)
}

/// Compiles the fuzz targets, which are outside the workspace.
fn fuzz_targets() -> Result<Outcome> {
    let mut check = Command::new("cargo");
    check.current_dir(root()).env("CARGO_TARGET_DIR", target().join("fuzz"));
    process::run(check.args(["check", "--quiet", "--manifest-path", "fuzz/Cargo.toml"]), BUILD_LIMIT)?;
    Ok(Outcome::passed())
}

/// Checks licences, bans and sources. Advisories need the network: `cargo xtask audit`. Without the tool the step is
/// not run, which fails in CI: a check that is left out must not look like one that passed.
fn deny() -> Result<Outcome> {
    let deny = match tools::CARGO_DENY.installed() {
        Ok(deny) => deny,
        Err(error) => return Ok(Outcome::NotRun(format!("cargo-deny cannot be installed: {error:#}"))),
    };
    let arguments = ["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    process::run(Command::new(deny).current_dir(root()).args(arguments), 5 * MINUTE)?;
    Ok(Outcome::Passed("bans, licences, sources; advisories: cargo xtask audit".to_owned()))
}
