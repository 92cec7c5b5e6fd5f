//! A rough estimate of a request's tokens: the tokenizers of agents are unknown.

use interlingua_core::json::Json;
use interlingua_core::model::{Body, Message};

/// Bytes of English text in a token, as a rule of thumb.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens of a message in addition to its contents.
const TOKENS_PER_MESSAGE: usize = 4;
/// Tokens of an image, audio, video or file, regardless of its size.
const TOKENS_PER_MEDIUM: usize = 256;

/// Estimates the number of tokens in messages.
pub fn of_messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> usize {
    messages
        .into_iter()
        .map(|message| {
            let contents = message.content.iter().map(|content| match &content.body {
                Body::Text(text) | Body::Refusal(text) => of_bytes(text.len()),
                Body::Data(data) => of_bytes(data.text().len()),
                Body::Other(_) => of_bytes(Json::from_serialize(content).text().len()),
                Body::Image(_) | Body::Video(_) | Body::Audio { .. } | Body::File(_) => TOKENS_PER_MEDIUM,
            });
            TOKENS_PER_MESSAGE + contents.sum::<usize>()
        })
        .sum()
}

/// Estimates the number of tokens in declarations of tools.
pub fn of_tools<'a>(tools: impl IntoIterator<Item = &'a Json>) -> usize {
    let bytes: usize = tools.into_iter().map(|tool| tool.text().len()).sum();
    bytes / BYTES_PER_TOKEN
}

const fn of_bytes(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlingua_core::model::Content;

    #[test]
    fn four_bytes_are_a_token_and_media_have_a_price() {
        let mut message = Message::user("12345678");
        assert_eq!(of_messages([&message]), 6);
        message.content.push(Content::new(Body::Image(Some("data:image/png;base64,AAAA".to_owned()))));
        assert_eq!(of_messages([&message, &message]), 2 * (6 + TOKENS_PER_MEDIUM));
        assert_eq!(of_tools([&Json::from_serialize("123456")]), 2);
    }
}
