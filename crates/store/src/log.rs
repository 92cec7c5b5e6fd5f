//! The log: the latest journal lines of many runs as frames in one blob. Written with every commit while turns run,
//! read only after a crash.
//!
//! ```text
//! frame = the run's key (as long as the store has them) · first event (8 bytes) · number of events (4) · number of
//!         bytes (4) · lines
//! ```

/// Journal lines of one run.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a, const KEY: usize> {
    /// Identifies the run in its store.
    pub run: [u8; KEY],
    /// Index of the first event.
    pub first: u64,
    /// Number of events.
    pub count: u32,
    /// The journal lines of these events.
    pub lines: &'a [u8],
}

/// Bytes of a header after its key.
const HEADER_BYTES: usize = 16;

/// Appends a frame with the lines that `write` produces; nothing if it produces none.
pub fn append<const KEY: usize>(
    log: &mut Vec<u8>,
    run: [u8; KEY],
    first: u64,
    last: u64,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = log.len();
    log.extend_from_slice(&run);
    log.extend_from_slice(&[0; HEADER_BYTES]);
    write(log);
    let length = u32::try_from(log.len() - start - KEY - HEADER_BYTES);
    let count = u32::try_from(last.saturating_sub(first));

    // Lines too large for a frame are written with the next settle; the limits on runs are far below that.
    let (Ok(length @ 1..), Ok(count)) = (length, count) else {
        log.truncate(start);
        return;
    };

    let header = &mut log[start + KEY..start + KEY + HEADER_BYTES];
    header[..8].copy_from_slice(&first.to_le_bytes());
    header[8..12].copy_from_slice(&count.to_le_bytes());
    header[12..].copy_from_slice(&length.to_le_bytes());
}

/// The frames of a blob, up to the first incomplete one.
pub fn frames<const KEY: usize>(mut log: &[u8]) -> impl Iterator<Item = Frame<'_, KEY>> {
    std::iter::from_fn(move || {
        let (run, rest) = log.split_first_chunk::<KEY>()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (lines, rest) = rest.split_at_checked(length)?;

        log = rest;
        Some(Frame { run: *run, first: u64::from_le_bytes(*first), count: u32::from_le_bytes(*count), lines })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_and_torn_frames_are_skipped() {
        let mut log = Vec::new();
        append(&mut log, [7], 3, 5, |log| log.extend_from_slice(b"ab\n"));
        append(&mut log, [8], 0, 0, |_| {});
        append(&mut log, [255], u64::MAX, u64::MAX, |log| log.extend_from_slice(b"\n"));

        let parsed: Vec<_> = frames::<1>(&log).collect();
        assert_eq!(parsed.len(), 2, "an empty write makes no frame");
        assert_eq!(parsed[0], Frame { run: [7], first: 3, count: 2, lines: b"ab\n" });

        for cut in 0..log.len() {
            assert!(frames::<1>(&log[..cut]).count() < 2, "cut at {cut}");
        }
    }
}
