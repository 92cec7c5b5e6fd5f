//! Whole messages that repeat an answer at its end: the part of them that did not come before.
//!
//! Not here: reading the rest as a delta ([`super::reader`]).

/// The beginning of a text is compared up to this length, in bytes.
const MAX_HEAD: usize = 64;
/// Minimum length of the streamed text at which a message that repeats it counts as cumulative, in bytes.
const MIN_CUMULATIVE: usize = 3;

/// A text that was streamed: its length and its beginning. Its end is not kept, so that a text costs no memory twice.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    head: String,
    len: usize,
}

/// The part of a whole text that is new.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NewText<'a> {
    /// Text behind the streamed one. May be empty.
    New(&'a str),
    /// The text is another one: it contradicts the streamed one.
    Other,
}

impl StreamedText {
    /// Counts a piece.
    #[inline]
    pub(super) fn add(&mut self, piece: &str) {
        if self.head.len() == self.len {
            self.extend_head(piece);
        }
        self.len += piece.len();
    }

    #[cold]
    fn extend_head(&mut self, piece: &str) {
        let room = MAX_HEAD - self.head.len();
        let fits = piece.char_indices().take_while(|(at, character)| at + character.len_utf8() <= room);
        self.head.extend(fits.map(|(_, character)| character));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Compares a whole text with the streamed one.
    pub(super) fn rest<'a>(&self, whole: &'a str) -> NewText<'a> {
        if whole.len() <= self.len {
            return NewText::New("");
        }
        match whole.get(self.len..).filter(|_| whole.starts_with(&self.head)) {
            Some(rest) => NewText::New(rest),
            None => NewText::Other,
        }
    }

    /// The part of a message that is new where a server sends messages in place of deltas. `is_last`: the answer ends
    /// with it.
    pub(super) fn rest_of_message<'a>(&self, text: &'a str, is_last: bool) -> &'a str {
        let is_all = text.len() >= self.len && text.starts_with(&self.head);
        let is_cumulative = is_last || self.len >= MIN_CUMULATIVE;
        match text.get(self.len..) {
            Some(rest) if is_all && is_cumulative && !self.is_empty() => rest,
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(pieces: &[&str]) -> StreamedText {
        let mut streamed = StreamedText::default();
        pieces.iter().for_each(|piece| streamed.add(piece));
        streamed
    }

    #[test]
    fn only_the_unstreamed_rest_of_a_text_is_emitted() {
        let long = "zwei Städte ".repeat(20);
        for (pieces, whole, wanted) in [
            (&["Hel", "", "lo"][..], "Hello", NewText::New("")),
            (&["Hel"], "Hello", NewText::New("lo")),
            (&["\n\nHello"], "Hello", NewText::New("")),
            (&["Hello"], "Goodbye", NewText::Other),
            (&[&long, "ü"], &(long.clone() + "ü."), NewText::New(".")),
            (&[], "Hello", NewText::New("Hello")),
        ] {
            assert_eq!(streamed(pieces).rest(whole), wanted, "{pieces:?}");
        }
        let cut = streamed(&["ä", &"x".repeat(61), "ü", "y"]);
        assert!(cut.head.len() <= MAX_HEAD && long.is_char_boundary(0));
        assert_eq!(cut.rest(&format!("ä{}üyz", "x".repeat(61))), NewText::New("z"));
    }

    #[test]
    fn messages_in_place_of_deltas_are_pieces_or_cumulative() {
        for (pieces, text, is_last, wanted) in [
            (&["Hel"][..], "lo", false, "lo"),
            (&["Hel"], "Hello", false, "lo"),
            (&["Ha"], "Ha", false, "Ha"),
            (&["Ha"], "Ha", true, ""),
            (&["Hello"], "Hello", false, ""),
            (&[], "Hello", true, "Hello"),
        ] {
            assert_eq!(streamed(pieces).rest_of_message(text, is_last), wanted, "{pieces:?} {text}");
        }
    }
}
