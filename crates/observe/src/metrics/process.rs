//! Figures of the process, under the usual names of Prometheus client libraries. Read from `/proc` at each scrape;
//! absent on systems without it.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The figures of this process.
#[derive(Debug)]
pub(super) struct Process {
    /// When the process began, in seconds since 1970.
    started: f64,
}

impl Process {
    pub(super) const fn new(started: f64) -> Self {
        Self { started }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let started = ConstGauge::new(self.started);
        let (name, help) = ("process_start_time", "When the process began, since 1970");
        started.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), started.metric_type())?)?;

        if let Some(seconds) = cpu_seconds() {
            let cpu = ConstCounter::new(seconds);
            let (name, help) = ("process_cpu", "Processor time used, in all threads");
            cpu.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), cpu.metric_type())?)?;
        }

        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (key, name, help) in [
            ("VmRSS:", "process_resident_memory", "Memory in use"),
            ("VmSize:", "process_virtual_memory", "Address space in use"),
        ] {
            let Some(bytes) = kibibytes(&status, key).map(|kibibytes| kibibytes << 10) else { continue };
            let gauge = ConstGauge::new(bytes);
            gauge.encode(encoder.encode_descriptor(name, help, Some(&Unit::Bytes), gauge.metric_type())?)?;
        }

        for (name, help, number) in [
            ("process_open_fds", "Open files and sockets", open_files()),
            ("process_max_fds", "The most files and sockets that may be open", max_files()),
            ("process_threads", "Threads", number_after(&status, "Threads:")),
        ] {
            let Some(number) = number else { continue };
            let gauge = ConstGauge::new(number);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// The memory of this process that is in use, in bytes. `None` where the system does not say.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    u64::try_from(kibibytes(&status, "VmRSS:")? << 10).ok()
}

/// Processor time of the process in seconds.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold spaces. After it, user and system time are the 12th and 13th field, in ticks.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    // Linux reports 100 ticks a second to programs on all architectures.
    Some((f64::from(ticks()?) + f64::from(ticks()?)) / 100.0)
}

fn open_files() -> Option<i64> {
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()
}

fn max_files() -> Option<i64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    number_after(&limits, "Max open files")
}

fn kibibytes(status: &str, key: &str) -> Option<i64> {
    number_after(status, key)
}

/// The first number of the line that begins with `key`.
fn number_after(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_ascii_whitespace().next()?.parse().ok()
}
