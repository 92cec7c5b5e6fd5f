//! The row of steps a run consists of: what each was called, how it ended and how long it took. Knows nothing of what
//! the steps do.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How a step ended well or was left out. What went wrong is an error.
pub(crate) enum Outcome {
    /// It ran and found nothing wrong; a few words on what it did, or none.
    Passed(String),
    /// It could not be run here, and why. In CI that is a failure.
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
    words: String,
    took: Duration,
}

/// What ran so far.
pub(crate) struct Report {
    rows: Vec<Row>,
    begun: Instant,
    in_ci: bool,
}

impl Report {
    /// An empty report. With `CI` in the environment a step that cannot be run is a failed one.
    pub(crate) fn new() -> Self {
        let in_ci = std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false");
        Self { rows: Vec::new(), begun: Instant::now(), in_ci }
    }

    /// Runs one step and writes down how it ended. `true` where it passed.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("\n── {name} {}", "─".repeat(90usize.saturating_sub(name.len())));
        let begun = Instant::now();
        let (end, words) = match work() {
            Ok(Outcome::Passed(words)) => (End::Passed, words),
            Ok(Outcome::NotRun(why)) if self.in_ci => (End::Failed, format!("not run: {why}")),
            Ok(Outcome::NotRun(why)) => (End::NotRun, why),
            Err(error) => (End::Failed, format!("{error:#}")),
        };
        let row = Row { name: name.to_owned(), end, words, took: begun.elapsed() };
        println!("{row}");
        let passed = matches!(row.end, End::Passed);
        self.rows.push(row);
        passed
    }

    /// Prints all rows and the closing line; `false` where a step failed or none ran.
    pub(crate) fn close(self) -> bool {
        println!("\n{}", "═".repeat(94));
        for row in &self.rows {
            println!("{row}");
        }
        let count = |wanted: fn(&End) -> bool| self.rows.iter().filter(|row| wanted(&row.end)).count();
        let (passed, failed) = (count(|end| matches!(end, End::Passed)), count(|end| matches!(end, End::Failed)));
        println!("total {:.1} s", self.begun.elapsed().as_secs_f64());
        match count(|end| matches!(end, End::NotRun)) {
            0 => println!("{passed} passed, {failed} failed"),
            skipped => println!("{passed} passed, {failed} failed, {skipped} skipped"),
        }
        failed == 0 && passed > 0
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, end, words, took } = self;
        write!(f, "{end:<8} {name:<22} {:>7.1} s  {words}", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(in_ci: bool) -> Report {
        Report { rows: Vec::new(), begun: Instant::now(), in_ci }
    }

    #[test]
    fn a_step_that_cannot_be_run_is_a_failure_in_ci_alone() {
        for (in_ci, well) in [(false, true), (true, false)] {
            let mut report = report(in_ci);
            report.step("done", || Ok(Outcome::passed()));
            report.step("left out", || Ok(Outcome::NotRun("no tool".to_owned())));
            assert_eq!(report.close(), well);
        }
    }

    #[test]
    fn a_run_of_nothing_is_no_success() {
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
