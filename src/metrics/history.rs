//! What was counted lately: 15 minutes by second and 24 hours by minute, in memory.
//!
//! Counts are collected where runs end ([`Recent`]) and taken once a second by the keeper of the [`History`]. It is bounded:
//! by the number of steps, and by the agents and protocols of the configuration. Not here: when it is taken, and who reads
//! it (`crate::server`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::histogram::{MAX_BOUNDS, bucket};
use super::{DURATION_BOUNDS, FIRST_EVENT_BOUNDS};

/// How runs end, in the order of the counts of a step.
const OUTCOMES: [&str; 5] = ["completed", "incomplete", "failed", "canceled", "rejected"];

/// How far back the history goes, and how fine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// 15 minutes by second.
    Minutes,
    /// 24 hours by minute.
    Day,
}

impl Window {
    /// The window of this name: `15m` or `24h`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Minutes, Self::Day].into_iter().find(|window| window.name() == name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minutes => "15m",
            Self::Day => "24h",
        }
    }

    /// How long a step is, in milliseconds.
    #[must_use]
    pub const fn step_ms(self) -> u64 {
        match self {
            Self::Minutes => 1_000,
            Self::Day => 60_000,
        }
    }

    /// The most steps.
    const fn steps(self) -> u64 {
        match self {
            Self::Minutes => 900,
            Self::Day => 1_440,
        }
    }
}

/// Runs of an agent or over a protocol that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// All of them.
    pub ended: u64,
    /// Those that failed.
    pub failed: u64,
}

/// How many runs ended, by a name.
pub type EndedBy = BTreeMap<String, Ended>;

/// Values in the buckets of a histogram.
type Buckets = [u32; MAX_BOUNDS + 1];

/// What was counted in a time.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    outcomes: [u64; OUTCOMES.len()],
    first: Buckets,
    total: Buckets,
    by_agent: EndedBy,
    by_protocol: EndedBy,
}

impl Counted {
    fn add(&mut self, other: &Self) {
        for (sum, count) in self.outcomes.iter_mut().zip(other.outcomes) {
            *sum += count;
        }
        for (sums, counts) in [(&mut self.first, other.first), (&mut self.total, other.total)] {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.saturating_add(count);
            }
        }
        add_names(&mut self.by_agent, &other.by_agent);
        add_names(&mut self.by_protocol, &other.by_protocol);
    }
}

fn add_names(sums: &mut EndedBy, counts: &EndedBy) {
    for (name, count) in counts {
        let sum = sums.entry(name.clone()).or_default();
        sum.ended += count.ended;
        sum.failed += count.failed;
    }
}

/// What was counted since it was last taken.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Counted>);

impl Recent {
    pub(super) fn began_after(&self, time: Duration) {
        self.change(|counted| counted.first[bucket(FIRST_EVENT_BOUNDS, time)] += 1);
    }

    pub(super) fn run_ended(&self, agent: &str, protocol: &str, outcome: &str, took: Duration) {
        self.change(|counted| {
            if let Some(index) = OUTCOMES.iter().position(|known| *known == outcome) {
                counted.outcomes[index] += 1;
            }
            counted.total[bucket(DURATION_BOUNDS, took)] += 1;
            for (names, name) in [(&mut counted.by_agent, agent), (&mut counted.by_protocol, protocol)] {
                let count = names.entry(name.to_owned()).or_default();
                count.ended += 1;
                count.failed += u64::from(outcome == "failed");
            }
        });
    }

    pub(super) fn take(&self) -> Counted {
        self.change(std::mem::take)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Counted) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One second or minute.
#[derive(Clone, Debug, Default)]
struct Step {
    /// When it began, in milliseconds since 1970.
    at: u64,
    /// The most runs at once.
    live: usize,
    /// The most memory in bytes.
    memory: Option<u64>,
    counted: Counted,
}

/// The latest steps of a window, the oldest first.
#[derive(Debug)]
struct Ring {
    window: Window,
    steps: VecDeque<Step>,
}

impl Ring {
    const fn new(window: Window) -> Self {
        Self { window, steps: VecDeque::new() }
    }

    fn add(&mut self, now: u64, live: usize, memory: Option<u64>, counted: &Counted) {
        let length = self.window.step_ms();
        // A clock that was set back counts into the latest step: times only rise.
        let at = (now - now % length).max(self.steps.back().map_or(0, |step| step.at));
        let oldest = at.saturating_sub((self.window.steps() - 1) * length);
        while self.steps.front().is_some_and(|step| step.at < oldest) {
            self.steps.pop_front();
        }
        if self.steps.back().is_none_or(|step| step.at < at) {
            self.steps.push_back(Step { at, ..Step::default() });
        }
        if let Some(step) = self.steps.back_mut() {
            step.live = step.live.max(live);
            step.memory = step.memory.max(memory);
            step.counted.add(counted);
        }
    }
}

/// What was counted lately, by second and by minute.
#[derive(Debug)]
pub struct History {
    seconds: Ring,
    minutes: Ring,
}

impl Default for History {
    fn default() -> Self {
        Self { seconds: Ring::new(Window::Minutes), minutes: Ring::new(Window::Day) }
    }
}

/// Numbers by step, the oldest first. Times are in milliseconds; `None`: nothing was measured in the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// The most runs at once.
    pub live: Vec<usize>,
    /// Runs that ended well.
    pub completed: Vec<u64>,
    /// Runs that ended before the agent was done.
    pub incomplete: Vec<u64>,
    /// Runs that failed.
    pub failed: Vec<u64>,
    /// Runs that were canceled.
    pub canceled: Vec<u64>,
    /// Runs that were rejected.
    pub rejected: Vec<u64>,
    /// From the beginning of a turn to its first event: half of the turns were as fast.
    pub first_p50: Vec<Option<f64>>,
    /// The same for 95 % of the turns.
    pub first_p95: Vec<Option<f64>>,
    /// The same for 99 % of the turns.
    pub first_p99: Vec<Option<f64>>,
    /// From the first input of a run to its end: half of the runs were as fast.
    pub total_p50: Vec<Option<f64>>,
    /// The same for 95 % of the runs.
    pub total_p95: Vec<Option<f64>>,
    /// The same for 99 % of the runs.
    pub total_p99: Vec<Option<f64>>,
    /// The most memory of the process in bytes.
    pub memory: Vec<Option<u64>>,
}

/// A window of the history.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// When each step began, in milliseconds since 1970.
    pub times: Vec<u64>,
    /// The numbers of each step.
    pub series: Series,
    /// Runs that ended in the window, by agent.
    pub by_agent: EndedBy,
    /// Runs that ended in the window, by protocol.
    pub by_protocol: EndedBy,
}

impl History {
    /// Adds what was counted up to `now`, in milliseconds since 1970.
    pub fn add(&mut self, now: u64, live: usize, memory: Option<u64>, counted: &Counted) {
        self.seconds.add(now, live, memory, counted);
        self.minutes.add(now, live, memory, counted);
    }

    /// What is known of a window. Its latest step is still under way.
    #[must_use]
    pub fn past(&self, window: Window) -> Past {
        let ring = if window == Window::Minutes { &self.seconds } else { &self.minutes };
        let mut past = Past::default();
        for step in &ring.steps {
            past.times.push(step.at);
            past.series.push(step);
            add_names(&mut past.by_agent, &step.counted.by_agent);
            add_names(&mut past.by_protocol, &step.counted.by_protocol);
        }
        past
    }
}

impl Series {
    fn push(&mut self, step: &Step) {
        let Counted { outcomes: [completed, incomplete, failed, canceled, rejected], first, total, .. } = &step.counted;
        self.live.push(step.live);
        self.completed.push(*completed);
        self.incomplete.push(*incomplete);
        self.failed.push(*failed);
        self.canceled.push(*canceled);
        self.rejected.push(*rejected);
        self.first_p50.push(quantile(FIRST_EVENT_BOUNDS, first, 0.5));
        self.first_p95.push(quantile(FIRST_EVENT_BOUNDS, first, 0.95));
        self.first_p99.push(quantile(FIRST_EVENT_BOUNDS, first, 0.99));
        self.total_p50.push(quantile(DURATION_BOUNDS, total, 0.5));
        self.total_p95.push(quantile(DURATION_BOUNDS, total, 0.95));
        self.total_p99.push(quantile(DURATION_BOUNDS, total, 0.99));
        self.memory.push(step.memory);
    }
}

/// The value in milliseconds that a part of all values does not exceed: within its bucket by interpolation, and the highest
/// bound for what is above all of them. `None` without values.
fn quantile(bounds: &[f64], buckets: &Buckets, part: f64) -> Option<f64> {
    let count: u32 = buckets.iter().sum();
    let wanted = f64::from(count) * part;
    let (mut below, mut lower) = (0.0, 0.0);
    for (upper, count) in bounds.iter().zip(buckets) {
        let count = f64::from(*count);
        if count > 0.0 && below + count >= wanted {
            return Some((lower + (upper - lower) * (wanted - below) / count) * 1_000.0);
        }
        (below, lower) = (below + count, *upper);
    }
    (count > 0).then_some(lower * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: &str, millis: u64) -> Counted {
        let recent = Recent::default();
        recent.run_ended("friday", "a2a", outcome, Duration::from_millis(millis));
        recent.take()
    }

    #[test]
    fn what_was_counted_is_taken_once() {
        let recent = Recent::default();
        recent.run_ended("friday", "a2a", "failed", Duration::from_millis(10));
        recent.began_after(Duration::from_millis(10));
        assert_eq!(recent.take().by_agent["friday"], Ended { ended: 1, failed: 1 });
        let next = recent.take();
        assert!(next.by_agent.is_empty() && next.first == [0; MAX_BOUNDS + 1] && next.outcomes == [0; 5], "{next:?}");
    }

    #[test]
    fn seconds_are_summed_up_in_minutes() {
        let mut history = History::default();
        history.add(60_000, 1, Some(7), &ended("completed", 10));
        history.add(61_500, 3, None, &ended("failed", 10));
        history.add(120_000, 2, Some(5), &Counted::default());

        let seconds = history.past(Window::Minutes);
        assert_eq!(seconds.times, [60_000, 61_000, 120_000]);
        assert_eq!((seconds.series.completed, seconds.series.failed), (vec![1, 0, 0], vec![0, 1, 0]));
        assert_eq!(seconds.series.memory, [Some(7), None, Some(5)]);
        let minutes = history.past(Window::Day);
        assert_eq!((minutes.times, minutes.series.live), (vec![60_000, 120_000], vec![3, 2]));
        assert_eq!((minutes.series.failed, minutes.series.memory), (vec![1, 0], vec![Some(7), Some(5)]));
        assert_eq!(minutes.by_agent["friday"], Ended { ended: 2, failed: 1 });
        assert_eq!(minutes.by_protocol["a2a"], Ended { ended: 2, failed: 1 });
    }

    #[test]
    fn it_keeps_no_more_than_its_windows() {
        let mut history = History::default();
        for second in 0..100_000 {
            history.add(second * 1_000, 0, None, &Counted::default());
        }
        let (seconds, minutes) = (history.past(Window::Minutes).times, history.past(Window::Day).times);
        assert_eq!((seconds.len(), seconds[0], seconds[899]), (900, 99_100_000, 99_999_000));
        assert_eq!((minutes.len(), minutes[1_439]), (1_440, 99_960_000));

        // After a pause, what is too old is gone at once.
        history.add(999_999_000, 0, None, &Counted::default());
        assert_eq!(history.past(Window::Minutes).times, [999_999_000]);
    }

    #[test]
    fn times_rise_when_the_clock_is_set_back() {
        let mut history = History::default();
        history.add(50_000, 1, None, &ended("completed", 10));
        history.add(20_000, 2, None, &ended("canceled", 10));
        let past = history.past(Window::Minutes);
        assert_eq!((past.times, past.series.live), (vec![50_000], vec![2]));
        assert_eq!((past.series.completed, past.series.canceled), (vec![1], vec![1]));
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_value() {
        assert_eq!(quantile(DURATION_BOUNDS, &[0; MAX_BOUNDS + 1], 0.5), None);
        let mut counted = ended("completed", 80);
        for _ in 0..9 {
            counted.add(&ended("completed", 20));
        }
        let half = quantile(DURATION_BOUNDS, &counted.total, 0.5).expect("a value");
        let most = quantile(DURATION_BOUNDS, &counted.total, 0.99).expect("a value");
        assert!((5.0..25.0).contains(&half) && (25.0..=100.0).contains(&most), "{half} {most}");

        let above = quantile(DURATION_BOUNDS, &ended("completed", 9_000_000).total, 0.5);
        assert_eq!(above, Some(600_000.0), "the highest bound");
    }
}
