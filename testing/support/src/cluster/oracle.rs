//! Properties that hold after every fault: compares the clients' views with the later answers of each gateway, and with
//! the agent's requests.
//!
//! Not here: time limits, which each rig has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use super::client::{Protocol, RunView};
use super::stream::Frame;

/// Runs that are read at the same time.
const READERS: usize = 4;

/// A property that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Frames of a run are missing, double or out of order.
    Broken,
    /// The client of a run got no end, or several.
    Endless,
    /// A completed run has another text than the agent's.
    WrongText,
    /// A gateway does not show a run as a client saw it.
    Differing,
    /// An answer that no client must get.
    WrongAnswer,
    /// The agent received an input more than once.
    Twice,
}

impl Violation {
    pub const ALL: [Self; 6] =
        [Self::Broken, Self::Endless, Self::WrongText, Self::Differing, Self::WrongAnswer, Self::Twice];
}

/// The violations of each kind, each described in a line.
#[derive(Default)]
pub struct Oracle(Mutex<BTreeMap<Violation, Vec<String>>>);

impl Oracle {
    fn add(&self, violation: Violation, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(violation).or_default().push(what);
    }

    /// The violations of one kind.
    pub fn found(&self, violation: Violation) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&violation).cloned().unwrap_or_default()
    }

    /// # Panics
    /// If there is a violation.
    pub fn expect_none(&self, context: &str) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(found.is_empty(), "{context}: {found:#?}");
    }

    /// Checks the view of one client by itself.
    pub fn check_view(&self, seen: &RunView) {
        for wrong in &seen.wrong {
            self.add(Violation::WrongAnswer, wrong.clone());
        }
        let Some(id) = &seen.id else { return };
        let numbers: Vec<u64> = seen.frames.iter().map(|frame| frame.number).collect();
        // AG-UI counts events of which it does not show all.
        let is_gap = |pair: &[u64]| pair[1] <= pair[0] || seen.protocol != Protocol::AgUi && pair[1] != pair[0] + 1;
        if let Some(pair) = numbers.windows(2).find(|pair| is_gap(pair)) {
            let connections = seen.resumed + 1;
            self.add(Violation::Broken, format!("{id}: {} after {}, {connections} connections", pair[1], pair[0]));
        }

        let ends = seen.frames.iter().filter(|frame| frame.is_end()).count();
        if ends != 1 || !seen.is_ended() {
            let last = seen.frames.last().map(|frame| frame.data.as_str()).unwrap_or_default();
            self.add(
                Violation::Endless,
                format!("{id}: {ends} ends after {} connections, last {last}", seen.resumed + 1),
            );
        }
        let has = |word: &str| seen.frames.iter().any(|frame| frame.data.contains(word));
        if seen.is_completed() && !seen.task.answer.split_inclusive(' ').all(has) {
            self.add(Violation::WrongText, format!("{id}: no {}", seen.task.answer));
        }
    }

    /// Checks the number of the agent's requests for each input.
    pub fn check_requests<K: AsRef<str>>(&self, requests: impl IntoIterator<Item = (K, usize)>) {
        for (key, count) in requests.into_iter().filter(|(_, count)| *count > 1) {
            self.add(Violation::Twice, format!("{}: {count} times", key.as_ref()));
        }
    }

    /// Reads every run that a client saw to its end again on every gateway.
    ///
    /// # Errors
    /// A gateway cannot be reached.
    pub fn compare_all(&self, addresses: &[SocketAddr], all: &[RunView]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let known: Vec<&RunView> = all.iter().filter(|seen| seen.id.is_some() && seen.is_ended()).collect();
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        while let Some(seen) = known.get(next.fetch_add(1, Ordering::Relaxed)) {
                            addresses.iter().try_for_each(|address| self.compare(seen, *address))?;
                        }
                        Ok(())
                    })
                })
                .collect();
            readers.into_iter().try_for_each(|reader| reader.join().unwrap_or(Ok(())))
        })
    }

    /// Compares a client's view with the run as a gateway shows it: they must be equal.
    ///
    /// # Errors
    /// The gateway cannot be reached.
    pub fn compare(&self, seen: &RunView, address: SocketAddr) -> Result<()> {
        let (status, stored) = seen.stored(address)?;
        self.compare_frames(seen, status, &stored, &format!("at {address}"));
        Ok(())
    }

    /// Compares a client's view with the status and the frames of the run elsewhere.
    pub fn compare_frames(&self, seen: &RunView, status: u16, stored: &[Frame], elsewhere: &str) {
        if status == 200 && stored == seen.frames {
            return;
        }
        let differing = seen.frames.iter().zip(stored).position(|(seen, stored)| seen != stored);
        let show = |frames: &[Frame]| differing.and_then(|at| Some(frames.get(at)?.data.clone())).unwrap_or_default();
        let (id, counts) = (seen.id.as_deref().unwrap_or_default(), (seen.frames.len(), stored.len()));
        let (here, there) = (show(&seen.frames), show(stored));
        self.add(
            Violation::Differing,
            format!(
                "{id} {elsewhere}: status {status}, {} frames seen, {} stored, differing at {differing:?}: {here} / {there}",
                counts.0, counts.1
            ),
        );
    }
}

/// The number of these streams, which may have been closed before their end, that are no prefix of a gateway's current
/// answer.
///
/// # Errors
/// A gateway cannot be reached.
pub fn count_no_prefixes(addresses: &[SocketAddr], all: &[RunView]) -> Result<usize> {
    let mut differing = 0;
    for seen in all.iter().filter(|seen| seen.id.is_some()) {
        for address in addresses {
            let (status, stored) = seen.stored(*address)?;
            if status != 200 || !stored.starts_with(&seen.frames) || !stored.last().is_some_and(Frame::is_end) {
                let (last, stored) = (seen.frames.last(), stored.last());
                eprintln!("{:?} at {address}: status {status}, last seen {last:?}, stored {stored:?}", seen.id);
                differing += 1;
            }
        }
    }
    Ok(differing)
}
