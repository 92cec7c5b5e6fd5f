//! Reads the answer of a server piece by piece: the messages of an event stream, or one document.

use std::mem::take;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use interlingua_core::sse::Decoder;
use interlingua_upstream::message_client::MessageAnswer;

use super::budget::Share;
use super::lines::MAX_LINE;

/// The reason why an answer cannot be read to its end.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The connection broke. The rest of an event stream may be available over another one.
    Cut(String),
    /// The answer is too large.
    TooLarge(&'static str),
}

/// An answer that is being read.
pub(super) struct AnswerReader {
    answer: MessageAnswer,
    form: AnswerForm,
    share: Share,
}

enum AnswerForm {
    /// `None`: it was returned.
    Document(Option<Vec<u8>>),
    Events {
        decoder: Box<Decoder>,
        unread: Bytes,
    },
}

impl AnswerReader {
    /// Reads an answer by its content type. `share` counts the bytes of it that are held.
    pub(super) fn new(answer: MessageAnswer, share: Share) -> Self {
        let form = if answer.is_event_stream() {
            AnswerForm::Events { decoder: Box::new(Decoder::new(MAX_LINE)), unread: Bytes::new() }
        } else {
            AnswerForm::Document(Some(Vec::new()))
        };
        Self { answer, form, share }
    }

    /// The data of the next event, or the whole document. `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        loop {
            if let Some(data) = self.take_event()? {
                return Ok(Some(data));
            }
            let chunk = self.answer.chunk().await.map_err(ReadError::Cut)?;
            match (&mut self.form, chunk) {
                (AnswerForm::Events { .. }, None) => return Ok(None),
                (AnswerForm::Events { unread, .. }, Some(chunk)) => *unread = chunk,
                (AnswerForm::Document(document), None) => return Ok(document.take()),
                (AnswerForm::Document(document), Some(chunk)) => {
                    let Some(document) = document else { continue };
                    let size = document.len() + chunk.len();
                    if size > MAX_LINE {
                        return Err(ReadError::TooLarge("is larger than 64 MiB"));
                    }
                    // Twice: the message is copied to be written on one line.
                    resize(&mut self.share, 2 * size)?;
                    document.extend_from_slice(&chunk);
                }
            }
        }
    }

    /// The next event of the bytes that were read.
    fn take_event(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let AnswerForm::Events { decoder, unread } = &mut self.form else { return Ok(None) };
        let chunk = take(unread);
        let mut input = &chunk[..];
        let decoded = decoder.decode(&mut input).map_err(|_| ReadError::TooLarge("has an event larger than 64 MiB"))?;
        let data = decoded.map(|frame| frame.data.to_vec());
        let used = chunk.len() - input.len();
        *unread = chunk;
        unread.advance(used);
        // Twice: as above.
        resize(&mut self.share, unread.len() + decoder.memory() + 2 * data.as_ref().map_or(0, Vec::len))?;
        Ok(data)
    }

    /// The id of the last event, for `Last-Event-ID`. Empty: the events have none.
    pub(super) fn last_event_id(&self) -> &str {
        match &self.form {
            AnswerForm::Events { decoder, .. } => decoder.last_event_id(),
            AnswerForm::Document(_) => "",
        }
    }

    /// The pause before another connection that the server asked for.
    pub(super) fn retry(&self) -> Option<Duration> {
        match &self.form {
            AnswerForm::Events { decoder, .. } => decoder.retry(),
            AnswerForm::Document(_) => None,
        }
    }

    /// True if the answer is an event stream.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.form, AnswerForm::Events { .. })
    }
}

fn resize(share: &mut Share, bytes: usize) -> Result<(), ReadError> {
    let refused = ReadError::TooLarge("is too large: the messages under way have more than 256 MiB together");
    if share.resize(bytes) { Ok(()) } else { Err(refused) }
}
