//! Counters of turns for collectors: distributions with the bounds of the GenAI conventions.
//!
//! Separate from the metrics for Prometheus, whose names and bounds are the gateway's own. Counted once a turn, under a
//! lock. Not here: the names (`crate`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// In seconds.
const INVOCATION_BOUNDS: &[f64] = &[0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6];
/// In seconds.
const CHUNK_BOUNDS: &[f64] = &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const TOKEN_BOUNDS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// The most series. More turn up only if agents are renamed again and again.
const MAX_SERIES: usize = 10_000;

/// A distribution of values.
#[derive(Clone, Debug)]
pub struct Distribution {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    min: f64,
    max: f64,
}

impl Distribution {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0, min: f64::INFINITY, max: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// The upper bounds of the buckets, each of which belongs to its bucket. The last bucket has none.
    #[must_use]
    pub const fn bounds(&self) -> &'static [f64] {
        self.bounds
    }

    /// The values in each bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub const fn sum(&self) -> f64 {
        self.sum
    }

    /// The smallest value. Infinite without values.
    #[must_use]
    pub const fn min(&self) -> f64 {
        self.min
    }

    /// The largest.
    #[must_use]
    pub const fn max(&self) -> f64 {
        self.max
    }
}

/// The turns of an agent that ended alike. Chunks and tokens of all its turns are in the series without a failure.
#[derive(Clone, Debug)]
pub struct TurnSeries {
    /// The protocol of the agent.
    pub provider: Arc<str>,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The code of the failure, one of the gateway's own or `_OTHER`.
    pub error: Option<&'static str>,
    /// Durations of turns, in seconds.
    pub duration: Distribution,
    /// Times to the agent's first event, in seconds.
    pub first_chunk: Distribution,
    /// Input tokens of turns.
    pub input_tokens: Distribution,
    /// Output tokens of turns.
    pub output_tokens: Distribution,
}

impl TurnSeries {
    fn new((provider, agent, error): &Key) -> Self {
        Self {
            provider: Arc::clone(provider),
            agent: Arc::clone(agent),
            error: *error,
            duration: Distribution::new(INVOCATION_BOUNDS),
            first_chunk: Distribution::new(CHUNK_BOUNDS),
            input_tokens: Distribution::new(TOKEN_BOUNDS),
            output_tokens: Distribution::new(TOKEN_BOUNDS),
        }
    }
}

/// A turn that has ended.
#[derive(Clone, Copy, Debug)]
pub struct TurnEnd<'a> {
    /// The protocol of the agent.
    pub provider: &'a Arc<str>,
    /// The agent's name.
    pub agent: &'a str,
    /// The code of the failure, one of the gateway's own or `_OTHER`.
    pub error: Option<&'static str>,
    /// The duration of the turn.
    pub took: Duration,
    /// Until the agent's first event.
    pub first_chunk: Option<Duration>,
    /// Input and output tokens.
    pub tokens: Option<(u64, u64)>,
}

/// Protocol, agent, and code of a failure.
type Key = (Arc<str>, Arc<str>, Option<&'static str>);

/// Counters of turns.
pub struct GenAiMetrics {
    /// When counting began, in milliseconds since 1970.
    since: u64,
    series: Mutex<HashMap<Key, TurnSeries>>,
}

impl Default for GenAiMetrics {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { since: u64::try_from(since.as_millis()).unwrap_or(0), series: Mutex::default() }
    }
}

impl GenAiMetrics {
    /// Counts a turn.
    pub fn turn_ended(&self, end: &TurnEnd<'_>) {
        let agent: Arc<str> = Arc::from(end.agent);
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SERIES {
            return;
        }
        let key = |error| (Arc::clone(end.provider), Arc::clone(&agent), error);
        let series = all.entry(key(end.error)).or_insert_with_key(TurnSeries::new);
        series.duration.observe(end.took.as_secs_f64());

        // Only durations have a label for failures.
        let good = all.entry(key(None)).or_insert_with_key(TurnSeries::new);
        if let Some(first_chunk) = end.first_chunk {
            good.first_chunk.observe(first_chunk.as_secs_f64());
        }
        if let Some((input, output)) = end.tokens {
            // Exact up to 2^53 tokens.
            #[allow(clippy::cast_precision_loss)]
            let (input, output) = (input as f64, output as f64);
            good.input_tokens.observe(input);
            good.output_tokens.observe(output);
        }
    }

    /// When counting began, in milliseconds since 1970.
    #[must_use]
    pub const fn since(&self) -> u64 {
        self.since
    }

    /// Everything that was counted, in no order.
    #[must_use]
    pub fn series(&self) -> Vec<TurnSeries> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_agent_and_failure() {
        let metrics = GenAiMetrics::default();
        let provider = Arc::from("a2a");
        let turn = |error, millis, tokens| {
            let took = Duration::from_millis(millis);
            metrics.turn_ended(&TurnEnd { provider: &provider, agent: "a", error, took, first_chunk: None, tokens });
        };
        turn(None, 100, Some((3, 70_000_000)));
        turn(None, 101, None);
        turn(Some("TIMEOUT"), 500_000, Some((3, 1)));

        let mut series = metrics.series();
        series.sort_by_key(|series| series.error);
        assert_eq!(series.len(), 2);
        let good = &series[0];
        assert_eq!((good.duration.counts()[..3].to_vec(), good.duration.count()), (vec![1, 1, 0], 2));
        assert_eq!(
            (good.input_tokens.min(), good.input_tokens.max(), good.input_tokens.sum()),
            (3.0, 3.0, 6.0),
            "of failed turns too"
        );
        assert_eq!(good.output_tokens.counts().last(), Some(&1), "beyond the last bound");
        assert_eq!(good.first_chunk.count(), 0);
        assert_eq!((series[1].duration.counts().last(), series[1].input_tokens.count()), (Some(&1), 0));
    }
}
