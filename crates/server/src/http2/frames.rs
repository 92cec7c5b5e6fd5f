//! Reads the headers of HTTP/2 frames from a client and skips their payloads (RFC 9113, section 4.1).
//!
//! The HTTP/2 library does not report frames that are not part of requests. Not here: limits on their number
//! (`floods.rs`), and timeouts ([`super::super::clock`]).

/// The length of the connection preface (RFC 9113, section 3.4), in bytes.
const PREFACE_LEN: u8 = 24;
const HEADER_LEN: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The kind of a frame, by the work that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Part of a request. The HTTP/2 library limits these frames.
    Request,
    /// The client cancels a stream.
    Reset,
    /// The client can receive more of a response.
    WindowUpdate,
    /// Any other frame: it costs work and advances no request.
    Control,
}

/// The position of a connection within the frames of a client.
pub(super) struct FrameScanner {
    /// Bytes of the preface that have not arrived.
    preface: u8,
    /// The first `filled` bytes of an incomplete frame header.
    header: [u8; HEADER_LEN],
    filled: usize,
    /// Bytes of the frame's payload that have not arrived.
    payload: u32,
    is_data: bool,
    /// True between the frames of one header block.
    in_header_block: bool,
}

impl FrameScanner {
    pub(super) const fn new() -> Self {
        Self {
            preface: PREFACE_LEN,
            header: [0; HEADER_LEN],
            filled: 0,
            payload: 0,
            is_data: false,
            in_header_block: false,
        }
    }

    /// Reads received bytes. Calls `on_frame` for each complete frame header. Returns true if the bytes crossed a point
    /// outside of all small messages ([`Self::is_inside`]).
    pub(super) fn read(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(FrameKind)) -> bool {
        let mut was_between = false;
        let preface = bytes.len().min(self.preface.into());
        self.preface -= u8::try_from(preface).unwrap_or(PREFACE_LEN);
        bytes = &bytes[preface..];

        while !bytes.is_empty() {
            if self.payload > 0 {
                let skipped = bytes.len().min(usize::try_from(self.payload).unwrap_or(usize::MAX));
                self.payload -= u32::try_from(skipped).unwrap_or(u32::MAX);
                bytes = &bytes[skipped..];
            } else {
                let added = bytes.len().min(HEADER_LEN - self.filled);
                self.header[self.filled..self.filled + added].copy_from_slice(&bytes[..added]);
                self.filled += added;
                bytes = &bytes[added..];
                if self.filled == HEADER_LEN {
                    self.filled = 0;
                    on_frame(self.begin());
                }
            }
            was_between |= !self.is_inside();
        }
        was_between
    }

    /// Starts the payload of the frame in `header`.
    fn begin(&mut self) -> FrameKind {
        let [a, b, c, kind, flags, ..] = self.header;
        self.payload = u32::from_be_bytes([0, a, b, c]);
        self.is_data = kind == DATA;
        match kind {
            DATA if self.payload == 0 && flags & END_STREAM == 0 => FrameKind::Control,
            DATA => FrameKind::Request,
            HEADERS | PUSH_PROMISE | CONTINUATION => {
                self.in_header_block = flags & END_HEADERS == 0;
                FrameKind::Request
            }
            RST_STREAM => FrameKind::Reset,
            WINDOW_UPDATE => FrameKind::WindowUpdate,
            _ => FrameKind::Control,
        }
    }

    /// True within a small message that should be complete soon: the preface, a header block, a frame other than DATA,
    /// or any frame header.
    pub(super) const fn is_inside(&self) -> bool {
        self.preface > 0 || self.in_header_block || self.filled > 0 || (self.payload > 0 && !self.is_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let length = u32::try_from(length).expect("short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        frame.resize(HEADER_LEN + u32::from_be_bytes(length) as usize, 0xff);
        frame
    }

    /// The bytes of a connection with all kinds of frames, and the expected kinds.
    fn connection() -> (Vec<u8>, Vec<FrameKind>) {
        use FrameKind::{Control, Request, Reset, WindowUpdate};
        let frames = [
            (frame(4, 0, 12), Control),
            (frame(HEADERS, 0, 30), Request),
            (frame(CONTINUATION, 0, 0), Request),
            (frame(CONTINUATION, END_HEADERS, 5), Request),
            (frame(DATA, 0, 700), Request),
            (frame(DATA, 0, 0), Control),
            (frame(DATA, END_STREAM, 0), Request),
            (frame(WINDOW_UPDATE, 0, 4), WindowUpdate),
            (frame(6, 1, 8), Control),
            (frame(RST_STREAM, 0, 4), Reset),
            (frame(0xee, 0xff, 3), Control),
        ];
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frames.iter().flat_map(|(bytes, _)| bytes));
        (bytes, frames.iter().map(|(_, meaning)| *meaning).collect())
    }

    #[test]
    fn frames_are_found_wherever_reads_cut_them() {
        let (bytes, expected) = connection();
        for cut in 0..=bytes.len() {
            let (mut scanner, mut found) = (FrameScanner::new(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                scanner.read(part, |frame| found.push(frame));
            }
            assert!(found == expected && !scanner.is_inside(), "cut at {cut}: {found:?}");
        }

        let (mut scanner, mut found) = (FrameScanner::new(), Vec::new());
        for byte in &bytes {
            scanner.read(std::slice::from_ref(byte), |frame| found.push(frame));
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn only_the_payload_of_data_may_take_its_time() {
        let mut scanner = FrameScanner::new();
        assert!(scanner.is_inside(), "the preface");
        assert!(!scanner.read(&[0; 23], |_| {}) && scanner.is_inside());
        scanner.read(&[0], |_| {});
        assert!(!scanner.is_inside());

        let data = frame(DATA, 0, 100);
        assert!(!scanner.read(&data[..8], |_| {}) && scanner.is_inside(), "its header");
        assert!(scanner.read(&data[8..50], |_| {}) && !scanner.is_inside());
        assert!(scanner.read(&data[50..], |_| {}) && !scanner.is_inside());

        let ping = frame(6, 0, 8);
        assert!(!scanner.read(&ping[..12], |_| {}) && scanner.is_inside());
        // The end of one frame, and the start of the next.
        assert!(scanner.read(&[&ping[12..], &ping[..12]].concat(), |_| {}) && scanner.is_inside());
        assert!(scanner.read(&ping[12..], |_| {}) && !scanner.is_inside());

        assert!(!scanner.read(&frame(HEADERS, 0, 5), |_| {}) && scanner.is_inside(), "a block without its end");
        assert!(scanner.read(&frame(CONTINUATION, END_HEADERS, 5), |_| {}) && !scanner.is_inside());
    }
}
