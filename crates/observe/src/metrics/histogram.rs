//! A histogram that is counted without a lock, and counts of one thread that are added to it from time to time.
//!
//! The library's own histogram takes a lock for each value, which would be paid for every chunk of every stream.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The most bounds of a histogram. One more bucket counts what is above all of them.
pub(super) const MAX_BOUNDS: usize = 15;

/// A distribution of durations. Clones count into the same one.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<HistogramInner>);

#[derive(Debug)]
struct HistogramInner {
    /// The upper bounds of the buckets in seconds, rising. The last bucket has none.
    bounds: &'static [f64],
    counts: [AtomicU64; MAX_BOUNDS + 1],
    sum_nanos: AtomicU64,
}

impl Histogram {
    /// A histogram with these upper bounds in seconds, rising; of more than 15 the first 15 count.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        let bounds = &bounds[..bounds.len().min(MAX_BOUNDS)];
        Self(Arc::new(HistogramInner { bounds, counts: Default::default(), sum_nanos: AtomicU64::new(0) }))
    }

    /// Counts one value.
    pub fn observe(&self, value: Duration) {
        self.0.counts[bucket(self.0.bounds, value)].fetch_add(1, Ordering::Relaxed);
        self.0.sum_nanos.fetch_add(nanos(value), Ordering::Relaxed);
    }

    /// Counts for one thread, to be [merged](Self::merge) later.
    #[must_use]
    pub fn local(&self) -> LocalCounts {
        LocalCounts { bounds: self.0.bounds, counts: [0; MAX_BOUNDS + 1], sum_nanos: 0 }
    }

    /// Adds what was counted, and empties it.
    pub fn merge(&self, local: &mut LocalCounts) {
        for (shared, count) in self.0.counts.iter().zip(&mut local.counts) {
            if *count > 0 {
                shared.fetch_add(u64::from(std::mem::take(count)), Ordering::Relaxed);
            }
        }
        self.0.sum_nanos.fetch_add(std::mem::take(&mut local.sum_nanos), Ordering::Relaxed);
    }
}

/// Values that one thread has counted, without atomics.
pub struct LocalCounts {
    bounds: &'static [f64],
    counts: [u32; MAX_BOUNDS + 1],
    sum_nanos: u64,
}

impl LocalCounts {
    /// Counts one value.
    pub fn observe(&mut self, value: Duration) {
        self.counts[bucket(self.bounds, value)] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos(value));
    }
}

/// The bucket of a value: a bound belongs to the bucket below it.
pub(super) fn bucket(bounds: &[f64], value: Duration) -> usize {
    let seconds = value.as_secs_f64();
    bounds.iter().position(|bound| seconds <= *bound).unwrap_or(bounds.len())
}

fn nanos(value: Duration) -> u64 {
    u64::try_from(value.as_nanos()).unwrap_or(u64::MAX)
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let HistogramInner { bounds, counts, sum_nanos } = &*self.0;
        let above = std::iter::once(&f64::INFINITY);
        let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.iter().chain(above).copied().zip(counts).collect();

        // The sum of what was read: a count that is read by itself could differ from the buckets.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_nanos(sum_nanos.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn text(histogram: &Histogram) -> String {
        let mut registry = Registry::default();
        registry.register("h", "Test", histogram.clone());
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        text
    }

    #[test]
    fn values_on_a_bound_count_below_it_and_large_ones_above_all() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for millis in [0, 500, 501, 1_000, 1_001, 60_000] {
            histogram.observe(Duration::from_millis(millis));
        }

        let text = text(&histogram);
        assert!(text.contains("h_bucket{le=\"0.5\"} 2\n"), "{text}");
        assert!(text.contains("h_bucket{le=\"1.0\"} 4\n"), "{text}");
        assert!(text.contains("h_bucket{le=\"+Inf\"} 6\n"), "{text}");
        assert!(text.contains("h_sum 63.002\n") && text.contains("h_count 6\n"), "{text}");
    }

    #[test]
    fn nothing_is_lost_when_many_threads_count_at_once() {
        let histogram = Histogram::new(&[0.001, 1.0]);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let histogram = histogram.clone();
                scope.spawn(move || {
                    let mut local = histogram.local();
                    for number in 0..10_000_u64 {
                        histogram.observe(Duration::from_millis(number % 2));
                        local.observe(Duration::from_millis(2_000));
                        if number % 100 == 0 {
                            histogram.merge(&mut local);
                        }
                    }
                    histogram.merge(&mut local);
                });
            }
        });

        let text = text(&histogram);
        assert!(text.contains("h_bucket{le=\"0.001\"} 80000\n"), "{text}");
        assert!(text.contains("h_bucket{le=\"+Inf\"} 160000\n") && text.contains("h_count 160000\n"), "{text}");
        assert!(text.contains("h_sum 160040.0\n"), "{text}");
    }
}
