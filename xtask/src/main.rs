//! `cargo xtask …`: everything people and CI run, in one place.
//!
//! ```text
//! cargo xtask test [--only NAME]…       all that CI runs
//! cargo xtask test --all                also the steps that take too long for CI: every suite, the whole matrix, PostgreSQL under the
//!                                       tests of the running gateway, faults, fuzzing, advisories, vendored files
//! cargo xtask t PATH…                   the tests that belong to these files or folders
//! cargo xtask t --changed               the tests that belong to the files that differ from the last commit
//! cargo xtask check                     the same without the conformance suites
//! cargo xtask conformance [NAME]…       conformance suites by name, also those CI skips; no name: lists them
//! cargo xtask bench [micro|load|console|instructions …]
//!                                       micro benchmarks, the load rig against nginx, the console, and instructions per
//!                                       delta beside the recorded ones; instructions --write: records (docs/benchmarks.md)
//! cargo xtask book                      builds the documentation into target/book, and checks its links
//! cargo xtask faults [NAME]…            fault scenarios against a release build; no name: all (faults/)
//! cargo xtask matrix [--write] [--only CLIENT,AGENT,SCENARIO]
//!                                       every pair of protocols, cut at every frame; --write: docs/matrix.md
//! cargo xtask fuzz [--seconds N] [NAME] every fuzz target, N seconds each (60)
//! cargo xtask vendor [--write]          compares the console's vendored files with their packages; --write: takes them
//! cargo xtask audit                     cargo-deny with the advisory database, which needs the network
//! cargo xtask new-protocol NAME [--serves] [--connects]
//!                                       writes the skeleton of an adapter, and registers it everywhere
//! cargo xtask pin-images [--check]      pins the images of the Dockerfile and the compose files by their current digests
//!                                       (network; docker, skopeo or crane); --check: lists images without one
//! ```
//!
//! # Steps
//!
//! A run is a sequence of [`report::Report`] steps: `fmt`, `clippy`, `alone` (core and each adapter compiled by
//! itself), `build` (the gateway and all tests, in the profile `ci`), `tests`, `replicas` (tests of runs, at two
//! gateways in turn), `doctests`, `deny`, `book`, and one step per conformance suite, two at once. `test --all` adds
//! `fuzz-targets` (they compile), `replicas-all` (all tests of the running gateway at two gateways), `matrix`,
//! `replicas-postgres`, `faults`, `fuzz`, `advisories`, `vendor` and all suites. It takes hours. All steps run even
//! where an earlier one failed, so one CI run shows every error. Each prints how long it took; the last line is `N
//! passed, N failed`. A step that could not be run is printed as `NOT RUN` with the reason; with `CI=true` it is a
//! failure.
//!
//! # Children
//!
//! Every child has its own process group and a time limit and cannot read standard input. When it exits, exceeds its
//! limit, or xtask is interrupted, the whole group is killed ([`process`]).
//!
//! # Adding a conformance suite
//!
//! Make a folder in `tests/conformance/` and add a row to the table in [`suites`]; `tests/conformance/README.md` lists
//! the files of the folder.
//!
//! # What is kept between runs
//!
//! Python environments, Node packages and tools that cargo does not bring live in a cache folder outside the
//! repository, named by version or by the hash of their requirements: `$INTERLINGUA_CACHE`, else
//! `$XDG_CACHE_HOME/interlingua`, else `~/.cache/interlingua`. It can be deleted at any time.
//!
//! Not here: code of the gateway itself.

mod bench;
mod book;
mod browser;
mod conformance;
mod faults;
mod fuzz;
mod images;
mod instructions;
mod matrix;
mod named_suites;
mod new_protocol;
mod node;
mod of_path;
mod process;
mod python;
mod report;
mod steps;
mod suites;
mod tools;
mod vendor;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    process::kill_children_when_interrupted();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one command. `false` if a step failed.
fn run(arguments: &[String]) -> Result<bool> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["test", "--all"] => steps::test_all(),
        ["test", rest @ ..] => steps::test(&only(rest)?),
        ["t", paths @ ..] => of_path::run(paths),
        ["check"] => steps::check(),
        ["conformance", names @ ..] => named_suites::by_name(names),
        ["bench", rest @ ..] => bench::run(rest),
        ["book"] => steps::book(),
        ["faults", names @ ..] => faults::run(names),
        ["matrix", rest @ ..] => matrix::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["vendor", rest @ ..] => vendor::run(rest),
        ["audit"] => steps::audit(),
        ["new-protocol", rest @ ..] => new_protocol::run(rest),
        ["pin-images", rest @ ..] => images::run(rest),
        _ => bail!(
            "usage: cargo xtask test [--all | --only NAME…] | t PATH… | t --changed | check | conformance [NAME]… | \
             bench [micro|load|console|instructions …] | book | faults [NAME]… | matrix [--write] [--only CLIENT,AGENT,SCENARIO] | \
             fuzz [--seconds N] [TARGET] | vendor [--write] | audit | new-protocol NAME [--serves] [--connects] | pin-images [--check]"
        ),
    }
}

/// The names after each `--only`.
fn only<'a>(arguments: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut names = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if *argument != "--only" {
            bail!("unknown argument {argument:?} of test, expected --all alone or --only NAME");
        }
        names.push(*rest.next().context("--only needs a name")?);
    }
    Ok(names)
}

/// The root folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// The target folder of cargo; respects `CARGO_TARGET_DIR`.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}
