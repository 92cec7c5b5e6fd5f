//! Properties that hold after every fault: compares the clients' views with the answers of each gateway afterwards, and
//! with the agent's requests.
//!
//! Not here: time limits, which each scenario has.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use super::client::{Protocol, RunView};
use super::cluster::Cluster;
use crate::check::Check;
use crate::stream::{Frame, read};

/// Runs that are read at the same time.
const READERS: usize = 4;
/// The number of printed differences of each kind.
const MAX_SHOWN: usize = 3;

/// Differences of each kind.
#[derive(Default)]
struct Differences {
    /// Runs of which frames are missing, double or out of order.
    broken: Mutex<Vec<String>>,
    /// Runs whose end no client got.
    endless: Mutex<Vec<String>>,
    /// Completed runs with another text than the agent's.
    wrong_text: Mutex<Vec<String>>,
    /// Runs that a gateway shows in another way than a client saw them.
    differing: Mutex<Vec<String>>,
    /// Answers that no client must get.
    wrong: Mutex<Vec<String>>,
    /// Texts that the agent received more than once.
    twice: Mutex<Vec<String>>,
}

fn add(list: &Mutex<Vec<String>>, what: String) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

/// Compares. All gateways must be there again.
pub(crate) fn check(cluster: &Cluster, all: &[RunView]) -> Result<Vec<Check>> {
    let found = Differences::default();
    for seen in all {
        check_seen(seen, &found);
    }
    for (key, count) in cluster.agent.asked().into_iter().filter(|(_, count)| *count > 1) {
        add(&found.twice, format!("{key}: {count} times"));
    }
    compare(&cluster.addresses(), all, &found)?;

    let known = all.iter().filter(|seen| seen.id.is_some());
    let completed = known.clone().filter(|seen| is_completed(seen)).count();
    let lists = [
        ("runs with a frame missing or double", found.broken),
        ("runs without an end", found.endless),
        ("completed runs with another text", found.wrong_text),
        ("runs that gateways show otherwise than they were seen", found.differing),
        ("other answers", found.wrong),
        ("executed twice", found.twice),
    ];
    let mut checks = vec![
        Check::info("runs", known.clone().count() as f64, ""),
        Check::info("… of them completed", completed as f64, ""),
        Check::info("… resumed elsewhere", known.filter(|seen| seen.resumed > 0).count() as f64, ""),
    ];
    for (name, list) in lists {
        let list = list.into_inner().unwrap_or_else(PoisonError::into_inner);
        for line in list.iter().take(MAX_SHOWN) {
            eprintln!("{name}: {line}");
        }
        checks.push(Check::at_most(name, list.len() as f64, 0.0, ""));
    }
    Ok(checks)
}

pub(crate) fn is_completed(seen: &RunView) -> bool {
    seen.frames.last().is_some_and(Frame::is_completed)
}

/// Checks the view of one client by itself.
fn check_seen(seen: &RunView, found: &Differences) {
    for wrong in &seen.wrong {
        add(&found.wrong, wrong.clone());
    }
    let Some(id) = &seen.id else { return };
    let numbers: Vec<u64> = seen.frames.iter().map(|frame| frame.number).collect();
    // AG-UI counts events of which it does not show all.
    let is_gap = |pair: &[u64]| pair[1] <= pair[0] || seen.protocol != Protocol::AgUi && pair[1] != pair[0] + 1;
    if let Some(pair) = numbers.windows(2).find(|pair| is_gap(pair)) {
        add(&found.broken, format!("{id}: {} after {}, {} connections", pair[1], pair[0], seen.resumed + 1));
    }

    let ends = seen.frames.iter().filter(|frame| frame.is_end()).count();
    if ends != 1 || !seen.is_ended() {
        let last = seen.frames.last().map(|frame| frame.data.as_str()).unwrap_or_default();
        add(&found.endless, format!("{id}: {ends} ends after {} connections, last {last}", seen.resumed + 1));
    }
    let has = |word: &str| seen.frames.iter().any(|frame| frame.data.contains(word));
    if is_completed(seen) && !seen.task.answer().split_inclusive(' ').all(has) {
        add(&found.wrong_text, format!("{id}: no {}", seen.task.answer()));
    }
}

/// Reads every run again on every gateway.
fn compare(addresses: &[SocketAddr], all: &[RunView], found: &Differences) -> Result<()> {
    let next = AtomicUsize::new(0);
    let known: Vec<&RunView> = all.iter().filter(|seen| seen.id.is_some() && seen.is_ended()).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some(seen) = known.get(next.fetch_add(1, Ordering::Relaxed)) {
                        for address in addresses {
                            compare_one(*address, seen, found)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| reader.join().unwrap_or(Ok(())))
    })
}

fn compare_one(address: SocketAddr, seen: &RunView, found: &Differences) -> Result<()> {
    let Some(id) = &seen.id else { return Ok(()) };
    let (status, stored) = read(address, &seen.protocol.resume(id, None))?;
    if status == 200 && stored == seen.frames {
        return Ok(());
    }
    let differing = seen.frames.iter().zip(&stored).position(|(seen, stored)| seen != stored);
    let show = |frames: &[Frame]| differing.and_then(|at| Some(frames.get(at)?.data.clone())).unwrap_or_default();
    add(
        &found.differing,
        format!(
            "{id} at {address}: status {status}, {} frames seen, {} stored, differing at {differing:?}: {} / {}",
            seen.frames.len(),
            stored.len(),
            show(&seen.frames),
            show(&stored)
        ),
    );
    Ok(())
}

/// The number of these streams, which may have been closed before their end, that are no prefix of a gateway's current
/// answer.
pub(crate) fn not_beginnings(cluster: &Cluster, all: &[RunView]) -> Result<usize> {
    let mut differing = 0;
    for seen in all {
        let Some(id) = &seen.id else { continue };
        for address in cluster.addresses() {
            let (status, stored) = read(address, &seen.protocol.resume(id, None))?;
            if status != 200 || !stored.starts_with(&seen.frames) || !stored.last().is_some_and(Frame::is_end) {
                let (seen, stored) = (seen.frames.last(), stored.last());
                eprintln!("{id} at {address}: status {status}, last seen {seen:?}, stored {stored:?}");
                differing += 1;
            }
        }
    }
    Ok(differing)
}
