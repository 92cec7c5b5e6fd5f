//! Bytes that arrive in chunks.

use std::mem;

use bytes::{Bytes, BytesMut};

/// Chunks in one piece. A single one is not copied.
#[derive(Debug, Default)]
pub struct ChunkBuffer {
    first: Bytes,
    joined: BytesMut,
}

impl ChunkBuffer {
    /// The number of bytes of all chunks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// True if all chunks were empty, or there was none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a chunk at the end.
    pub fn push(&mut self, chunk: Bytes) {
        if self.is_empty() {
            self.first = chunk;
            return;
        }
        self.joined.extend_from_slice(&mem::take(&mut self.first));
        self.joined.extend_from_slice(&chunk);
    }

    /// The bytes of all chunks.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_and_a_single_one_is_not_copied() {
        let joined = |chunks: &[&'static [u8]]| {
            let mut buffer = ChunkBuffer::default();
            chunks.iter().for_each(|chunk| buffer.push(Bytes::from_static(chunk)));
            assert_eq!(buffer.len(), chunks.iter().map(|chunk| chunk.len()).sum::<usize>());
            buffer.into_bytes()
        };
        let whole: &[u8] = b"whole";
        assert_eq!(joined(&[]), b""[..]);
        assert_eq!(joined(&[b"", whole]).as_ptr(), whole.as_ptr());
        assert_eq!(joined(&[b"a", b"", b"bc", b"d"]), b"abcd"[..]);
    }
}
