//! `cargo xtask fuzz`: runs every target of `fuzz/` for a fixed time. Not here: the targets.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::report::{Outcome, Report};
use crate::{process, root, tools};

/// Time limit for building the instrumented targets, in addition to the fuzzing time.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Small inputs find more per second.
const MAX_INPUT: &str = "-max_len=65536";

/// Targets that fuzz every protocol in turn, and by what their time is multiplied.
const OF_ALL_PROTOCOLS: ([&str; 2], u64) = (["agents", "clients"], 8);

pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let mut seconds = 60_u64;
    let mut wanted = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if *argument == "--seconds" {
            let value = rest.next().context("--seconds needs a number")?;
            seconds = value.parse().with_context(|| format!("--seconds {value}"))?;
        } else {
            wanted.push(*argument);
        }
    }

    let known = targets()?;
    let targets: Vec<&String> =
        known.iter().filter(|name| wanted.is_empty() || wanted.contains(&name.as_str())).collect();
    if targets.is_empty() || (!wanted.is_empty() && targets.len() != wanted.len()) {
        bail!("the fuzz targets are {}", known.join(", "));
    }

    let tool = tools::CARGO_FUZZ.installed()?;
    let mut report = Report::new();
    for target in targets {
        let (all, times) = OF_ALL_PROTOCOLS;
        let seconds = if all.contains(&target.as_str()) { seconds * times } else { seconds };
        report.step(&format!("fuzz {target}"), || {
            let mut fuzz = Command::new(&tool);
            // Sanitizers and coverage are unstable rustc flags. This allows them on the stable toolchain.
            fuzz.env("RUSTC_BOOTSTRAP", "1").current_dir(root());
            fuzz.args(["run", target, "--"]);
            fuzz.args([&format!("-max_total_time={seconds}"), MAX_INPUT, "-timeout=10", "-rss_limit_mb=2048"]);
            process::run(&mut fuzz, BUILD_LIMIT + Duration::from_secs(2 * seconds))?;
            Ok(Outcome::Passed(format!("{seconds} s, nothing found")))
        });
    }
    Ok(report.close())
}

/// Every file of `fuzz/fuzz_targets` is a target.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for file in std::fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
        let path = file?.path();
        if let (Some("rs"), Some(name)) =
            (path.extension().and_then(|ext| ext.to_str()), path.file_stem().and_then(|name| name.to_str()))
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
