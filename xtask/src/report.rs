//! The steps of a run: name, result and duration of each. Not here: what the steps do.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process;

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
        println!("{}", heading(name));
        let row = self.run(name, work);
        println!("{row}");
        let passed = matches!(row.end, End::Passed);
        self.rows.push(row);
        passed
    }

    /// Runs steps, `lanes` of them at once, and records their results in the given order. Prints the output of each
    /// step when the step ends.
    pub(crate) fn steps_at_once<W>(&mut self, lanes: usize, steps: Vec<(&str, W)>)
    where
        W: FnOnce() -> Result<Outcome> + Send,
    {
        let count = steps.len();
        let left = Mutex::new(steps.into_iter().enumerate().collect::<VecDeque<_>>());
        let ended = Mutex::new((0..count).map(|_| None).collect::<Vec<Option<Row>>>());
        let this = &*self;
        thread::scope(|scope| {
            for _ in 0..lanes.min(count) {
                scope.spawn(|| {
                    loop {
                        let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some((place, (name, work))) = next else { return };
                        let (row, printed) = process::collect_output(|| this.run(name, work));

                        let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                        println!("{}\n{printed}{row}", heading(name));
                        ended[place] = Some(row);
                    }
                });
            }
        });
        self.rows.extend(ended.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten());
    }

    fn run(&self, name: &str, work: impl FnOnce() -> Result<Outcome>) -> Row {
        let started = Instant::now();
        let (end, note) = match work() {
            Ok(Outcome::Passed(note)) => (End::Passed, note),
            Ok(Outcome::NotRun(why)) if self.in_ci => (End::Failed, format!("not run: {why}")),
            Ok(Outcome::NotRun(why)) => (End::NotRun, why),
            Err(error) => (End::Failed, format!("{error:#}")),
        };
        Row { name: name.to_owned(), end, note, took: started.elapsed() }
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

fn heading(name: &str) -> String {
    format!("\n── {name} {}", "─".repeat(90usize.saturating_sub(name.len())))
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
    fn steps_at_once_are_reported_in_their_order_and_a_failed_one_stops_no_other() {
        type Work = Box<dyn FnOnce() -> Result<Outcome> + Send>;
        let (sender, receiver) = std::sync::mpsc::channel();
        // The first one ends after the third one.
        let steps: Vec<(&str, Work)> = vec![
            ("waits", Box::new(move || receiver.recv().map(|()| Outcome::passed()).map_err(Into::into))),
            ("broken", Box::new(|| anyhow::bail!("it broke"))),
            ("whole", Box::new(move || sender.send(()).map(|()| Outcome::passed()).map_err(Into::into))),
            ("left out", Box::new(|| Ok(Outcome::NotRun("no tool".to_owned())))),
        ];
        let mut report = report(true);
        report.steps_at_once(2, steps);

        let ends = report.rows.iter().map(|row| (row.name.as_str(), matches!(row.end, End::Passed)));
        let expected = [("waits", true), ("broken", false), ("whole", true), ("left out", false)];
        assert_eq!(ends.collect::<Vec<_>>(), expected);
        assert!(!report.close());
    }

    #[test]
    fn steps_after_a_failed_one_still_run() {
        let mut report = report(false);
        assert!(!report.step("broken", || anyhow::bail!("it broke")));
        assert!(report.step("whole", || Ok(Outcome::passed())));
        assert!(!report.close());
    }
}
