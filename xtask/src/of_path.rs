//! The tests that belong to a path of the repository: `cargo xtask t`. Not here: the steps of CI (`steps`).

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{named_suites, process, root};

const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Tests of the root package that cover a crate, beside the crate's own tests: names of test binaries.
const COVERED_BY: &[(&str, &[&str])] = &[
    ("crates/admin", &["behaviour admin"]),
    ("crates/callers", &["behaviour credentials", "behaviour keys", "behaviour quotas"]),
    ("crates/config", &["config"]),
    ("crates/server", &["behaviour framing", "behaviour http2", "behaviour websocket"]),
    ("crates/store", &["store"]),
    ("crates/store-postgres", &["store"]),
    ("crates/store-sqlite", &["store"]),
    ("crates/upstream", &["upstream", "errors"]),
    ("src/cli", &["cli"]),
    ("src/reload", &["behaviour reload"]),
];

/// The tests that belong to one or more paths.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    /// Packages, all tests of which run. With a name: only tests whose path contains it.
    packages: BTreeSet<(String, Option<String>)>,
    /// Test binaries of the root package. With a name: only tests whose path contains it.
    binaries: BTreeSet<(String, Option<String>)>,
    suites: BTreeSet<String>,
}

impl Selection {
    /// Adds the tests of a path, relative to the root of the repository.
    fn add(&mut self, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            ["adapters" | "crates" | "testing", name, ..] => {
                let prefix = if parts[0] == "testing" { "interlingua-testing" } else { "interlingua" };
                self.packages.insert((format!("{prefix}-{name}"), None));
            }
            ["core", "src", module, ..] => {
                let module = module.trim_end_matches(".rs");
                let name = if module == "lib" { None } else { Some(module.to_owned()) };
                self.packages.insert(("interlingua-core".to_owned(), name));
            }
            ["core", ..] => drop(self.packages.insert(("interlingua-core".to_owned(), None))),
            ["xtask", ..] => drop(self.packages.insert(("xtask".to_owned(), None))),
            ["examples", "protocol-sketch", ..] => drop(self.packages.insert(("interlingua-sketch".to_owned(), None))),
            ["examples", ..] => drop(self.packages.insert(("custom-adapter".to_owned(), None))),
            ["benches", "load", ..] => drop(self.packages.insert(("load-rig".to_owned(), None))),
            ["faults", ..] => drop(self.packages.insert(("fault-rig".to_owned(), None))),
            ["tests", "conformance", suite, _, ..] => drop(self.suites.insert(suite.to_owned())),
            ["tests", binary, module, ..] => {
                let module = module.trim_end_matches(".rs");
                let name = if module == "main" { None } else { Some(format!("{module}::")) };
                self.binaries.insert((binary.to_owned(), name));
            }
            ["tests", file] => drop(self.binaries.insert((file.trim_end_matches(".rs").to_owned(), None))),
            ["console", ..] => drop(self.suites.insert("console".to_owned())),
            ["docs", ..] | [_] => {
                self.binaries.insert(("readme".to_owned(), None));
                self.binaries.insert(("tidy".to_owned(), None));
            }
            ["src", ..] => drop(self.packages.insert(("interlingua".to_owned(), Some("--lib".to_owned())))),
            _ => {}
        }

        for (_, tests) in
            COVERED_BY.iter().filter(|(folder, _)| path == *folder || path.starts_with(&format!("{folder}/")))
        {
            for test in *tests {
                let (binary, name) = test.split_once(' ').map_or((*test, None), |(binary, name)| (binary, Some(name)));
                self.binaries.insert((binary.to_owned(), name.map(str::to_owned)));
            }
        }
    }

    /// Arguments of `cargo nextest run`, one list for each call: the crate's own tests first, since they compile least.
    fn calls(&self) -> Vec<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let packages = self.packages.iter().map(|(package, name)| match name.as_deref() {
            Some("--lib") => words(&["-p", package, "--lib"]),
            Some(name) => words(&["-p", package, name]),
            None => words(&["-p", package]),
        });
        let binaries = self.binaries.iter().map(|(binary, name)| {
            let mut call = words(&["-p", "interlingua", "--test", binary]);
            call.extend(name.clone());
            call
        });
        packages.chain(binaries).collect()
    }
}

/// Runs the tests of paths, or with `--changed` of all files that differ from the last commit. `false`: one failed.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let paths = match arguments {
        [] => bail!("expected t PATH… or t --changed"),
        ["--changed"] => changed()?,
        paths => paths.iter().map(|path| relative(path)).collect::<Result<_>>()?,
    };
    let mut selection = Selection::default();
    for path in &paths {
        selection.add(path);
    }
    if selection == Selection::default() {
        bail!("no test belongs to {}", paths.join(", "));
    }

    let mut passed = true;
    for call in selection.calls() {
        println!("cargo nextest run {}", call.join(" "));
        let mut command = Command::new("cargo");
        command.current_dir(root()).args(["nextest", "run", "--locked", "--no-tests", "pass"]).args(call);
        passed &= process::run(&mut command, LIMIT).is_ok();
    }
    let suites: Vec<&str> = selection.suites.iter().map(String::as_str).collect();
    if !suites.is_empty() {
        passed &= named_suites::by_name(&suites)?;
    }
    Ok(passed)
}

/// A path as written by a person, relative to the root of the repository.
fn relative(path: &str) -> Result<String> {
    let full = std::path::absolute(path)?;
    let below = full.strip_prefix(root()).with_context(|| format!("{path} is outside the repository"))?;
    let text = below.to_str().context("a path of the repository is not UTF-8")?;
    if !full.exists() {
        bail!("{path} does not exist");
    }
    Ok(text.replace('\\', "/"))
}

/// Files that differ from the last commit, and new ones.
fn changed() -> Result<Vec<String>> {
    let output =
        Command::new("git").current_dir(root()).args(["status", "--porcelain", "--untracked-files=all"]).output()?;
    let text = String::from_utf8(output.stdout).context("the output of git is not UTF-8")?;
    // `XY path`, and `XY old -> new` for a renamed file.
    let paths: Vec<String> = text
        .lines()
        .filter_map(|line| line.get(3..))
        .map(|path| path.rsplit(" -> ").next().unwrap_or(path).trim_matches('"').to_owned())
        .collect();
    if paths.is_empty() {
        bail!("no file differs from the last commit");
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(paths: &[&str]) -> Vec<String> {
        let mut selection = Selection::default();
        for path in paths {
            selection.add(path);
        }
        selection.calls().iter().map(|call| call.join(" ")).collect()
    }

    #[test]
    fn a_path_selects_its_package_and_the_tests_that_cover_it() {
        assert_eq!(calls(&["adapters/a2a/src/serve/send.rs"]), ["-p interlingua-a2a"]);
        assert_eq!(calls(&["core/src/sse/decoder.rs"]), ["-p interlingua-core sse"]);
        assert_eq!(calls(&["crates/engine/src/driver.rs"]), ["-p interlingua-engine"]);
        let store = ["-p interlingua-store-sqlite", "-p interlingua --test store"];
        assert_eq!(calls(&["crates/store-sqlite/src/runs.rs"]), store);
        assert_eq!(calls(&["tests/behaviour/a2a.rs"]), ["-p interlingua --test behaviour a2a::"]);
        assert_eq!(calls(&["tests/behaviour/main.rs"]), ["-p interlingua --test behaviour"]);
        assert_eq!(calls(&["tests/cli.rs"]), ["-p interlingua --test cli"]);
        assert_eq!(calls(&["src/cli/key.rs"]), ["-p interlingua --lib", "-p interlingua --test cli"]);
    }

    #[test]
    fn crates_and_tests_of_the_table_exist() {
        for (folder, tests) in COVERED_BY {
            assert!(root().join(folder).is_dir(), "{folder}");
            for test in *tests {
                let (binary, module) =
                    test.split_once(' ').map_or((*test, None), |(binary, name)| (binary, Some(name)));
                let file = match module {
                    Some(module) => format!("tests/{binary}/{module}.rs"),
                    None => format!("tests/{binary}"),
                };
                let exists = root().join(&file).exists() || root().join(format!("{file}.rs")).exists();
                assert!(exists, "{file}");
            }
        }
    }
}
