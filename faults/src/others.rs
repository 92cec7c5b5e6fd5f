//! Well-behaved clients beside a fault, and what they notice of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::http;

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(2);

/// Sends a request again and again until `over`, and returns how long each took, in milliseconds.
///
/// # Errors
/// If one is not answered 200.
pub(crate) fn latencies(address: SocketAddr, request: &[u8], over: &AtomicBool) -> Result<Vec<f64>> {
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let answer = http::send(address, request)?;
        ensure!(answer.status == 200, "others are answered {}: {:.300}", answer.status, answer.body);
        took.push(started.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(PAUSE);
    }
    Ok(took)
}

/// The 99th percentile.
pub(crate) fn p99(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took.get(took.len().saturating_sub(1 + took.len() / 100)).copied().unwrap_or(0.0)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The latencies of others beside `load`, which ends soon after its argument is true. Each of two clients sends one
/// request after the other.
///
/// # Errors
/// If a request of the others fails, or the load does.
pub(crate) fn beside<T: Send>(
    address: SocketAddr,
    request: &[u8],
    time: Duration,
    load: impl FnOnce(&AtomicBool) -> Result<T> + Send,
) -> Result<(Vec<f64>, T)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..2).map(|_| scope.spawn(|| latencies(address, request, &over))).collect();
        let load = scope.spawn(|| load(&over));
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        for other in others {
            took.extend(other.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
        }
        Ok((took, load.join().map_err(|_| anyhow::anyhow!("the load panicked"))??))
    })
}
