//! Counts since they were last taken: in all, by agent and by protocol, and each agent's latest fault.
//!
//! Not here: their storage ([`super::history`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use interlingua_core::Blame;

use super::histogram::{MAX_BOUNDS, bucket};
use super::{DURATION_BOUNDS, FIRST_EVENT_BOUNDS};

/// The outcomes of runs, in the order of [`Counts::outcomes`].
const OUTCOMES: [&str; 5] = ["completed", "incomplete", "failed", "canceled", "rejected"];
/// The index of failed runs.
const FAILED: usize = 2;

/// Maximum number of agents, and of protocols, that are counted separately. Further ones are part of the total only.
pub(super) const MAX_NAMES: usize = 64;

/// Values in the buckets of a histogram.
pub(super) type Buckets = [u32; MAX_BOUNDS + 1];

/// Runs of an agent or over a protocol that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedRuns {
    /// All of them.
    pub ended: u64,
    /// The number of failed ones.
    pub failed: u64,
}

/// The number of ended runs, by a name.
pub type EndedBy = BTreeMap<String, EndedRuns>;

/// Counts by the name of an agent or a protocol.
pub(super) type CountsBy = BTreeMap<String, Counts>;

/// The counts of some runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) outcomes: [u64; OUTCOMES.len()],
    /// Failed runs by blame: client, upstream, gateway.
    pub(super) blames: [u64; 3],
    /// From the beginning of a turn to its first event.
    pub(super) first: Buckets,
    /// From the first input of a run to its end.
    pub(super) total: Buckets,
}

impl Counts {
    pub(super) fn ended(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    pub(super) const fn failed(&self) -> u64 {
        self.outcomes[FAILED]
    }

    pub(super) fn add(&mut self, other: &Self) {
        let counts = self.outcomes.iter_mut().chain(&mut self.blames);
        for (sum, count) in counts.zip(other.outcomes.iter().chain(&other.blames)) {
            *sum += count;
        }
        let buckets = self.first.iter_mut().chain(&mut self.total);
        for (sum, count) in buckets.zip(other.first.iter().chain(&other.total)) {
            *sum = sum.saturating_add(*count);
        }
    }
}

/// The counts of a period.
#[derive(Clone, Debug, Default)]
pub struct PeriodCounts {
    pub(super) all: Counts,
    pub(super) by_agent: CountsBy,
    pub(super) by_protocol: CountsBy,
}

impl PeriodCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        for (sums, counts) in [(&mut self.by_agent, &other.by_agent), (&mut self.by_protocol, &other.by_protocol)] {
            for (name, count) in counts {
                if let Some(sum) = named(sums, name) {
                    sum.add(count);
                }
            }
        }
    }

    fn change(&mut self, agent: &str, protocol: &str, change: impl Fn(&mut Counts)) {
        change(&mut self.all);
        for (names, name) in [(&mut self.by_agent, agent), (&mut self.by_protocol, protocol)] {
            if let Some(counts) = named(names, name) {
                change(counts);
            }
        }
    }
}

/// The counts of a name. `None`: there are too many names.
fn named<'a>(names: &'a mut CountsBy, name: &str) -> Option<&'a mut Counts> {
    if !names.contains_key(name) {
        if names.len() >= MAX_NAMES {
            return None;
        }
        names.insert(name.to_owned(), Counts::default());
    }
    names.get_mut(name)
}

/// Why a run of an agent failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFault {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// The code, as clients get it.
    pub code: String,
    /// The message, in the gateway's own words. `None`: the message is the agent's.
    pub message: Option<String>,
}

/// The counts since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Recent {
    counted: Mutex<PeriodCounts>,
    faults: Mutex<BTreeMap<String, LastFault>>,
}

impl Recent {
    pub(super) fn began_after(&self, agent: &str, protocol: &str, time: Duration) {
        let bucket = bucket(FIRST_EVENT_BOUNDS, time);
        self.lock(|counted| counted.change(agent, protocol, |counts| counts.first[bucket] += 1));
    }

    /// `blame`: whose fault it is that it failed, if it did.
    pub(super) fn run_ended(
        &self,
        agent: &str,
        protocol: &str,
        outcome: &'static str,
        blame: Option<Blame>,
        took: Duration,
    ) {
        let index = OUTCOMES.iter().position(|known| *known == outcome);
        let bucket = bucket(DURATION_BOUNDS, took);
        let blame = blame.filter(|_| index == Some(FAILED)).map(|blame| match blame {
            Blame::Client => 0,
            Blame::Upstream => 1,
            Blame::Gateway => 2,
        });
        self.lock(|counted| {
            counted.change(agent, protocol, |counts| {
                counts.total[bucket] += 1;
                if let Some(index) = index {
                    counts.outcomes[index] += 1;
                }
                if let Some(blame) = blame {
                    counts.blames[blame] += 1;
                }
            });
        });
    }

    /// Keeps why a run of an agent failed, instead of what was kept before.
    pub(super) fn note_fault(&self, agent: &str, fault: LastFault) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < MAX_NAMES || faults.contains_key(agent) {
            faults.insert(agent.to_owned(), fault);
        }
    }

    pub(super) fn last_fault(&self, agent: &str) -> Option<LastFault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).get(agent).cloned()
    }

    pub(super) fn take(&self) -> PeriodCounts {
        self.lock(std::mem::take)
    }

    fn lock<T>(&self, change: impl FnOnce(&mut PeriodCounts) -> T) -> T {
        change(&mut self.counted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_values_are_taken_once() {
        let recent = Recent::default();
        recent.run_ended("friday", "a2a", "failed", Some(Blame::Upstream), Duration::from_millis(10));
        recent.began_after("friday", "a2a", Duration::from_millis(10));
        let taken = recent.take();
        let friday = &taken.by_agent["friday"];
        assert_eq!((friday.ended(), friday.failed(), friday.blames), (1, 1, [0, 1, 0]));
        let next = recent.take();
        assert!(next.by_agent.is_empty() && next.all == Counts::default(), "{next:?}");
    }

    #[test]
    fn only_failed_runs_are_someones_fault() {
        let recent = Recent::default();
        recent.run_ended("friday", "a2a", "canceled", Some(Blame::Client), Duration::ZERO);
        assert_eq!(recent.take().all.blames, [0; 3]);
    }

    #[test]
    fn too_many_names_are_counted_in_the_whole_only() {
        let recent = Recent::default();
        for number in 0..1_000 {
            recent.run_ended(&format!("agent-{number}"), "a2a", "completed", None, Duration::ZERO);
        }
        let taken = recent.take();
        assert_eq!(
            (taken.all.ended(), taken.by_agent.len(), taken.by_protocol["a2a"].ended()),
            (1_000, MAX_NAMES, 1_000)
        );
    }
}
