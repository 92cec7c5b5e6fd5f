//! The texts of an answer, into which the texts of several messages are joined.

/// A text of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Content = 0,
    Refusal = 1,
    Reasoning = 2,
}

/// The part of a field that was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentText {
    /// The message and the content that were written last.
    pub(super) place: Option<(u32, u32)>,
    /// Where the text of that content begins in the answer's text, in characters.
    pub(super) start: usize,
}
