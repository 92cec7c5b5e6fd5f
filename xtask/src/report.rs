//! The steps of a run: name, result and duration of each. Not here: what the steps do.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;

/// The result of a step that did not fail. A failure is an error.
pub(crate) enum Outcome {
    /// The step passed; an optional note.
    Passed(String),
    /// The step could not be run, with the reason. In CI this is a failure.
    NotRun(String),
}

impl Outcome {
    pub(crate) fn passed() -> Self {
        Self::Passed(String::new())
    }
}

enum End {
    Passed,
    Failed,
    NotRun,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::NotRun => "NOT RUN",
        })
    }
}

struct Row {
    name: String,
    end: End,
    note: String,
    took: Duration,
}

/// The steps so far.
pub(crate) struct Report {
    rows: Vec<Row>,
    started: Instant,
    in_ci: bool,
}

impl Report {
    /// An empty report. With `CI` in the environment, a step that cannot be run has failed.
    pub(crate) fn new() -> Self {
        let in_ci = std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false");
        Self { rows: Vec::new(), started: Instant::now(), in_ci }
    }

    /// Runs one step and records its result. `true` if it passed.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("\n── {name} {}", "─".repeat(90usize.saturating_sub(name.len())));
        let started = Instant::now();
        let (end, note) = match work() {
            Ok(Outcome::Passed(note)) => (End::Passed, note),
            Ok(Outcome::NotRun(why)) if self.in_ci => (End::Failed, format!("not run: {why}")),
            Ok(Outcome::NotRun(why)) => (End::NotRun, why),
            Err(error) => (End::Failed, format!("{error:#}")),
        };
        let row = Row { name: name.to_owned(), end, note, took: started.elapsed() };
        println!("{row}");
        let passed = matches!(row.end, End::Passed);
        self.rows.push(row);
        passed
    }

    /// Prints all rows and the summary. `false` if a step failed or none passed.
    pub(crate) fn close(self) -> bool {
        println!("\n{}", "═".repeat(94));
        for row in &self.rows {
            println!("{row}");
        }

        let count = |wanted: fn(&End) -> bool| self.rows.iter().filter(|row| wanted(&row.end)).count();
        let (passed, failed) = (count(|end| matches!(end, End::Passed)), count(|end| matches!(end, End::Failed)));
        println!("total {:.1} s", self.started.elapsed().as_secs_f64());
        match count(|end| matches!(end, End::NotRun)) {
            0 => println!("{passed} passed, {failed} failed"),
            skipped => println!("{passed} passed, {failed} failed, {skipped} skipped"),
        }
        failed == 0 && passed > 0
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, end, note, took } = self;
        write!(f, "{end:<8} {name:<22} {:>7.1} s  {note}", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(in_ci: bool) -> Report {
        Report { rows: Vec::new(), started: Instant::now(), in_ci }
    }

    #[test]
    fn a_step_that_cannot_run_fails_only_in_ci() {
        for (in_ci, success) in [(false, true), (true, false)] {
            let mut report = report(in_ci);
            report.step("done", || Ok(Outcome::passed()));
            report.step("left out", || Ok(Outcome::NotRun("no tool".to_owned())));
            assert_eq!(report.close(), success);
        }
    }

    #[test]
    fn an_empty_run_is_not_a_success() {
        assert!(!report(false).close());
    }

    #[test]
    fn steps_after_a_failed_one_still_run() {
        let mut report = report(false);
        assert!(!report.step("broken", || anyhow::bail!("it broke")));
        assert!(report.step("whole", || Ok(Outcome::passed())));
        assert!(!report.close());
    }
}
