//! Recent counts: 15 minutes by second and 24 hours by minute, in memory.
//!
//! The keeper of the [`History`] takes the counts once a second. Their size is limited by the number of steps, and by
//! [`MAX_NAMES`](super::recent::MAX_NAMES) agents and protocols in each. Not here: the counters ([`super::recent`]),
//! the interval, and the readers (`interlingua-server`).

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use super::recent::{Buckets, Counts, EndedBy, PeriodCounts};
use super::{DURATION_BOUNDS, FIRST_EVENT_BOUNDS};

/// The length of the history, and the length of its steps.
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

    /// The length of a step, in milliseconds.
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

/// The runs of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SeriesFilter {
    /// All of them.
    #[default]
    All,
    /// The runs of the agent of this name.
    Agent(String),
    /// The runs that began over the protocol of this name.
    Protocol(String),
}

impl SeriesFilter {
    /// Their counts in a step, if there are any.
    fn find<'a>(&self, counted: &'a PeriodCounts) -> Option<&'a Counts> {
        match self {
            Self::All => Some(&counted.all),
            Self::Agent(name) => counted.by_agent.get(name),
            Self::Protocol(name) => counted.by_protocol.get(name),
        }
    }
}

/// One second or minute.
#[derive(Clone, Debug, Default)]
struct Step {
    /// When it began, in milliseconds since 1970.
    at: u64,
    /// The most of what was there at once.
    levels: MetricsSample,
    counted: PeriodCounts,
}

/// The levels at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsSample {
    /// Runs under way.
    pub live: usize,
    /// The memory of the process in bytes. `None`: the system does not say.
    pub memory: Option<u64>,
    /// Runs that the store has to write yet.
    pub store_owed: usize,
    /// The size of the store in bytes.
    pub store_bytes: u64,
}

impl MetricsSample {
    fn most(self, other: Self) -> Self {
        Self {
            live: self.live.max(other.live),
            memory: self.memory.max(other.memory),
            store_owed: self.store_owed.max(other.store_owed),
            store_bytes: self.store_bytes.max(other.store_bytes),
        }
    }
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

    fn add(&mut self, now: u64, levels: MetricsSample, counted: &PeriodCounts) {
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
            step.levels = step.levels.most(levels);
            step.counted.add(counted);
        }
    }
}

/// The recent counts, by second and by minute.
#[derive(Debug)]
pub struct History {
    seconds: Ring,
    minutes: Ring,
    /// Summaries that were requested since the last step.
    lately: HashMap<SeriesFilter, RecentStats>,
}

impl Default for History {
    fn default() -> Self {
        Self { seconds: Ring::new(Window::Minutes), minutes: Ring::new(Window::Day), lately: HashMap::new() }
    }
}

/// Numbers by step, the oldest first. Times are in milliseconds; `None`: nothing was measured in the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ts_rs::TS, schemars::JsonSchema)]
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
    /// Failed runs whose client was to blame.
    pub failed_client: Vec<u64>,
    /// Failed runs whose agent, or the way to it, was to blame.
    pub failed_upstream: Vec<u64>,
    /// Failed runs of which this gateway was to blame.
    pub failed_gateway: Vec<u64>,
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
    /// The most runs that the store still had to write.
    pub store_owed: Vec<usize>,
    /// The size of the store in bytes; 0 for one in memory.
    pub store_bytes: Vec<u64>,
}

/// A window of the history.
#[derive(Clone, Debug, Default)]
pub struct MetricsWindow {
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
    pub fn add(&mut self, now: u64, levels: MetricsSample, counted: &PeriodCounts) {
        self.seconds.add(now, levels, counted);
        self.minutes.add(now, levels, counted);
        self.lately.clear();
    }

    /// The counts of a window. Its latest step is incomplete. Levels are always those of the whole gateway.
    #[must_use]
    pub fn past(&self, window: Window, of: &SeriesFilter) -> MetricsWindow {
        let ring = if window == Window::Minutes { &self.seconds } else { &self.minutes };
        let (mut past, none) = (MetricsWindow::default(), Counts::default());
        for step in &ring.steps {
            past.times.push(step.at);
            past.series.push(step.levels, of.find(&step.counted).unwrap_or(&none));
            add_ended(&mut past.by_agent, &step.counted.by_agent);
            add_ended(&mut past.by_protocol, &step.counted.by_protocol);
        }
        past
    }

    /// A summary of the last 15 minutes of some runs.
    #[must_use]
    pub fn lately(&mut self, of: &SeriesFilter) -> RecentStats {
        if let Some(known) = self.lately.get(of) {
            return known.clone();
        }

        let (mut sum, mut ended) = (Counts::default(), Vec::new());
        for step in &self.seconds.steps {
            let counts = of.find(&step.counted);
            ended.push((step.at, counts.map_or(0, Counts::ended)));
            if let Some(counts) = counts {
                sum.add(counts);
            }
        }
        let lately = RecentStats {
            ended: sum.ended(),
            failed: sum.failed(),
            first_event_p50: quantile(FIRST_EVENT_BOUNDS, &sum.first, 0.5),
            per_minute: bars(&ended),
        };
        self.lately.insert(of.clone(), lately.clone());
        lately
    }
}

/// Some runs in the last 15 minutes.
#[derive(Clone, Debug, PartialEq, Serialize, ts_rs::TS, schemars::JsonSchema)]
pub struct RecentStats {
    /// Runs that ended.
    pub ended: u64,
    /// The number of failed ones.
    pub failed: u64,
    /// From the beginning of a turn to its first event in milliseconds: half of the turns were as fast.
    pub first_event_p50: Option<f64>,
    /// Runs that ended in each of the last 15 minutes, the oldest first.
    pub per_minute: Vec<u64>,
}

/// Sums by minute, of steps with their times; the last one ends with the latest step.
fn bars(steps: &[(u64, u64)]) -> Vec<u64> {
    let mut bars = vec![0; 15];
    let Some((latest, _)) = steps.last() else { return bars };
    for (at, count) in steps {
        let ago = usize::try_from((latest - at) / 60_000).unwrap_or(usize::MAX);
        if let Some(bar) = bars.iter_mut().rev().nth(ago) {
            *bar += count;
        }
    }
    bars
}

impl Series {
    fn push(&mut self, levels: MetricsSample, counts: &Counts) {
        let Counts { outcomes: [completed, incomplete, failed, canceled, rejected], first, total, blames } = counts;
        self.live.push(levels.live);
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
        self.memory.push(levels.memory);
        self.store_owed.push(levels.store_owed);
        self.store_bytes.push(levels.store_bytes);
        let [client, upstream, gateway] = blames;
        self.failed_client.push(*client);
        self.failed_upstream.push(*upstream);
        self.failed_gateway.push(*gateway);
    }
}

fn add_ended(sums: &mut EndedBy, counts: &super::recent::CountsBy) {
    for (name, count) in counts {
        let sum = sums.entry(name.clone()).or_default();
        sum.ended += count.ended();
        sum.failed += count.failed();
    }
}

/// The value in milliseconds that a part of all values does not exceed: within its bucket by interpolation, and the
/// highest bound for what is above all of them. `None` without values.
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
    use std::time::Duration;

    use super::super::histogram::MAX_BOUNDS;
    use super::super::recent::{EndedRuns, Recent};
    use super::*;

    fn ended(outcome: &'static str, millis: u64) -> PeriodCounts {
        let recent = Recent::default();
        recent.run_ended("friday", "a2a", outcome, None, Duration::from_millis(millis));
        recent.take()
    }

    fn live(live: usize, memory: Option<u64>) -> MetricsSample {
        MetricsSample { live, memory, ..MetricsSample::default() }
    }

    #[test]
    fn a_window_is_shown_of_one_agent_or_protocol_only() {
        let recent = Recent::default();
        for (agent, protocol, millis) in [("friday", "a2a", 10), ("demo", "a2a", 700), ("demo", "ag-ui", 700)] {
            recent.run_ended(agent, protocol, "completed", None, Duration::from_millis(millis));
            recent.began_after(agent, protocol, Duration::from_millis(millis));
        }
        recent.run_ended("demo", "ag-ui", "failed", Some(interlingua_core::Blame::Upstream), Duration::from_secs(1));
        let mut history = History::default();
        history.add(60_000, live(1, None), &recent.take());

        let of = |of: SeriesFilter| history.past(Window::Minutes, &of).series;
        assert_eq!((of(SeriesFilter::All).completed, of(SeriesFilter::All).failed_upstream), (vec![3], vec![1]));
        assert_eq!(
            (of(SeriesFilter::Agent("demo".into())).completed, of(SeriesFilter::Agent("demo".into())).failed),
            (vec![2], vec![1])
        );
        assert_eq!(of(SeriesFilter::Protocol("a2a".into())).completed, [2]);
        let slow = of(SeriesFilter::Protocol("ag-ui".into())).first_p50[0].expect("measured");
        assert!((500.0..=1000.0).contains(&slow), "{slow}");
        let unknown = of(SeriesFilter::Agent("unknown".into()));
        assert_eq!((unknown.completed, unknown.live, unknown.first_p50), (vec![0], vec![1], vec![None]));

        let lately = history.lately(&SeriesFilter::Agent("demo".into()));
        assert_eq!((lately.ended, lately.failed, lately.per_minute.iter().sum::<u64>()), (3, 1, 3));
        assert_eq!(history.lately(&SeriesFilter::Agent("unknown".into())).first_event_p50, None);
    }

    #[test]
    fn runs_of_the_last_minutes_are_summed_up_by_minute() {
        assert_eq!(bars(&[]), [0; 15]);
        let bars = bars(&[(0, 9), (60_000, 1), (839_000, 2), (899_000, 3), (900_000, 4)]);
        assert_eq!((bars[0], bars[13], bars[14]), (1, 2, 7), "{bars:?}");
    }

    #[test]
    fn seconds_are_summed_up_in_minutes() {
        let mut history = History::default();
        history.add(60_000, live(1, Some(7)), &ended("completed", 10));
        history.add(61_500, live(3, None), &ended("failed", 10));
        history.add(120_000, live(2, Some(5)), &PeriodCounts::default());

        let seconds = history.past(Window::Minutes, &SeriesFilter::All);
        assert_eq!(seconds.times, [60_000, 61_000, 120_000]);
        assert_eq!((seconds.series.completed, seconds.series.failed), (vec![1, 0, 0], vec![0, 1, 0]));
        assert_eq!(seconds.series.memory, [Some(7), None, Some(5)]);
        let minutes = history.past(Window::Day, &SeriesFilter::All);
        assert_eq!((minutes.times, minutes.series.live), (vec![60_000, 120_000], vec![3, 2]));
        assert_eq!((minutes.series.failed, minutes.series.memory), (vec![1, 0], vec![Some(7), Some(5)]));
        assert_eq!(minutes.by_agent["friday"], EndedRuns { ended: 2, failed: 1 });
        assert_eq!(minutes.by_protocol["a2a"], EndedRuns { ended: 2, failed: 1 });
    }

    #[test]
    fn it_keeps_no_more_than_its_windows() {
        let mut history = History::default();
        for second in 0..100_000 {
            history.add(second * 1_000, live(0, None), &PeriodCounts::default());
        }
        let (seconds, minutes) = (
            history.past(Window::Minutes, &SeriesFilter::All).times,
            history.past(Window::Day, &SeriesFilter::All).times,
        );
        assert_eq!((seconds.len(), seconds[0], seconds[899]), (900, 99_100_000, 99_999_000));
        assert_eq!((minutes.len(), minutes[1_439]), (1_440, 99_960_000));

        // After a pause, what is too old is gone at once.
        history.add(999_999_000, live(0, None), &PeriodCounts::default());
        assert_eq!(history.past(Window::Minutes, &SeriesFilter::All).times, [999_999_000]);
    }

    #[test]
    fn times_rise_when_the_clock_is_set_back() {
        let mut history = History::default();
        history.add(50_000, live(1, None), &ended("completed", 10));
        history.add(20_000, live(2, None), &ended("canceled", 10));
        let past = history.past(Window::Minutes, &SeriesFilter::All);
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
        let half = quantile(DURATION_BOUNDS, &counted.all.total, 0.5).expect("a value");
        let most = quantile(DURATION_BOUNDS, &counted.all.total, 0.99).expect("a value");
        assert!((5.0..25.0).contains(&half) && (25.0..=100.0).contains(&most), "{half} {most}");

        let above = quantile(DURATION_BOUNDS, &ended("completed", 9_000_000).all.total, 0.5);
        assert_eq!(above, Some(600_000.0), "the highest bound");
    }
}
