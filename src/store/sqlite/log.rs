//! The log: lately told lines of many runs in one blob, as frames. Written with every commit while turns run, read
//! only after a crash.
//!
//! ```text
//! frame = run's number (8 bytes) · first event (8) · how many events (4) · how many bytes (4) · lines
//! ```

/// Some lines of one run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Which run, as the table numbers it.
    pub(super) run: i64,
    /// The first event.
    pub(super) first: u64,
    /// How many events.
    pub(super) count: u32,
    /// Their lines.
    pub(super) lines: &'a [u8],
}

const HEAD: usize = 24;

/// Appends a frame whose lines are written by `write`; none if it writes nothing.
pub(super) fn append(log: &mut Vec<u8>, run: i64, first: u64, last: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let start = log.len();
    log.extend_from_slice(&[0; HEAD]);
    write(log);
    let length = u32::try_from(log.len() - start - HEAD);
    let count = u32::try_from(last.saturating_sub(first));
    // What does not fit a frame is written at the next settling; runs are limited to far less.
    let (Ok(length @ 1..), Ok(count)) = (length, count) else {
        log.truncate(start);
        return;
    };
    let head = &mut log[start..start + HEAD];
    head[..8].copy_from_slice(&run.to_le_bytes());
    head[8..16].copy_from_slice(&first.to_le_bytes());
    head[16..20].copy_from_slice(&count.to_le_bytes());
    head[20..].copy_from_slice(&length.to_le_bytes());
}

/// The frames of a blob, up to the first one that is not whole.
pub(super) fn frames(mut log: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    std::iter::from_fn(move || {
        let (run, rest) = log.split_first_chunk::<8>()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (lines, rest) = rest.split_at_checked(length)?;
        log = rest;
        Some(Frame {
            run: i64::from_le_bytes(*run),
            first: u64::from_le_bytes(*first),
            count: u32::from_le_bytes(*count),
            lines,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_and_torn_ones_left_out() {
        let mut log = Vec::new();
        append(&mut log, 7, 3, 5, |log| log.extend_from_slice(b"ab\n"));
        append(&mut log, 8, 0, 0, |_| {});
        append(&mut log, -1, u64::MAX, u64::MAX, |log| log.extend_from_slice(b"\n"));
        let whole: Vec<_> = frames(&log).collect();
        assert_eq!(whole.len(), 2, "nothing is no frame");
        assert_eq!(whole[0], Frame { run: 7, first: 3, count: 2, lines: b"ab\n" });
        for cut in 0..log.len() {
            assert!(frames(&log[..cut]).count() < 2, "cut at {cut}");
        }
    }
}
