//! A chunk of the stream, or a whole completion, borrowed from its frame.
//!
//! Not here: what the fields mean for the answer ([`super::reader`]).

use std::borrow::Cow;

use serde_json::value::RawValue;

use interlingua_core::lenient::{JsonText, List, Object, Text};
use interlingua_core::lenient_fields;

/// A chunk, or a whole completion.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) object: Option<Cow<'a, str>>,
    /// The type of events of other protocols.
    pub(super) kind: Option<Cow<'a, str>>,
    /// None: the field is missing or `null`.
    pub(super) choices: Option<List<Choice<'a>>>,
    pub(super) usage: Option<&'a RawValue>,
    /// `x_groq.usage`.
    pub(super) groq_usage: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    /// Top-level fields of errors in other forms.
    pub(super) message: Option<&'a RawValue>,
    pub(super) detail: Option<&'a RawValue>,
    pub(super) citations: Option<&'a RawValue>,
    pub(super) search_results: Option<&'a RawValue>,
}

/// One of the answers in a chunk.
#[derive(Debug, Default)]
pub(super) struct Choice<'a> {
    pub(super) index: Option<i64>,
    pub(super) delta: Option<Delta<'a>>,
    /// The whole message: the answer of a server that does not stream, or a repetition at the end of a stream. Some
    /// proxies call a delta so.
    pub(super) message: Option<Box<Delta<'a>>>,
    /// The text of an answer in the form of plain completions.
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) usage: Option<&'a RawValue>,
}

/// The new part of a choice.
#[derive(Debug, Default)]
pub(super) struct Delta<'a> {
    pub(super) content: List<ContentPart<'a>>,
    pub(super) refusal: Option<Cow<'a, str>>,
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    pub(super) reasoning: Option<Cow<'a, str>>,
    pub(super) reasoning_text: Option<Cow<'a, str>>,
    /// Reasoning under any other name: a text, or text parts.
    pub(super) thinking: List<ThinkingText<'a>>,
    /// A value that the server wants back with the message.
    pub(super) reasoning_opaque: Option<&'a RawValue>,
    pub(super) thinking_blocks: Option<&'a RawValue>,
    /// The content is reasoning (`extra_content.google.thought`).
    pub(super) is_thought: bool,
    pub(super) reasoning_details: Option<&'a RawValue>,
    pub(super) tool_calls: List<CallPiece<'a>>,
    /// The form before `tool_calls`.
    pub(super) function_call: Option<Function<'a>>,
    pub(super) images: List<ContentPart<'a>>,
    pub(super) audio: Option<AudioPiece<'a>>,
    pub(super) annotations: Option<&'a RawValue>,
    pub(super) executed_tools: Option<&'a RawValue>,
}

/// A part of the content. A bare string is a text part.
#[derive(Debug, Default)]
pub(super) struct ContentPart<'a> {
    pub(super) text: Option<Cow<'a, str>>,
    /// The text, or text parts, of a part of type `thinking`.
    pub(super) thinking: List<ThinkingText<'a>>,
    pub(super) image_url: Option<Cow<'a, str>>,
    pub(super) is_reasoning: bool,
}

/// A text inside a `thinking` part.
#[derive(Debug, Default)]
pub(super) struct ThinkingText<'a> {
    pub(super) text: Option<Cow<'a, str>>,
}

/// An image's address, in an object or bare.
#[derive(Debug, Default)]
struct ImageUrl<'a> {
    url: Option<Cow<'a, str>>,
}

/// A part of a tool call.
#[derive(Debug, Default)]
pub(super) struct CallPiece<'a> {
    pub(super) index: Option<i64>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) function: Function<'a>,
    /// A call with free text.
    pub(super) custom: Option<Function<'a>>,
    /// Data that the server expects back with the call, such as a signature of its reasoning.
    pub(super) extra_content: Option<&'a RawValue>,
}

impl<'a> CallPiece<'a> {
    pub(super) fn name(&self) -> Option<&str> {
        self.custom.as_ref().unwrap_or(&self.function).name.as_deref()
    }

    /// The arguments, or the free text.
    pub(super) fn arguments(&self) -> &str {
        &self.custom.as_ref().unwrap_or(&self.function).arguments
    }

    pub(super) const fn is_custom(&self) -> bool {
        self.custom.is_some()
    }
}

/// Name and arguments of a call, or parts of them.
#[derive(Debug, Default)]
pub(super) struct Function<'a> {
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Cow<'a, str>,
}

/// A part of a spoken answer.
#[derive(Debug, Default)]
pub(super) struct AudioPiece<'a> {
    /// Base64.
    pub(super) data: Option<Cow<'a, str>>,
    pub(super) transcript: Option<Cow<'a, str>>,
}

/// Fields beside the protocol's own in a delta.
#[derive(Debug, Default)]
struct ExtraContent<'a> {
    google: Google<'a>,
}

/// Fields of Gemini.
#[derive(Debug, Default)]
struct Google<'a> {
    thought: Option<&'a RawValue>,
}

impl Google<'_> {
    fn is_thought(&self) -> bool {
        self.thought.is_some_and(|thought| thought.get() == "true")
    }
}

/// Fields beside the protocol's own that Groq sends.
#[derive(Debug, Default)]
struct Groq<'a> {
    usage: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    /// Parses a JSON object. Values of other types than expected are absent.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let data = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
        serde_json::from_slice::<Object<Self>>(data).ok()?.0
    }

    /// The token usage in the chunk, in any of its known places.
    pub(super) fn usage(&self) -> Option<&'a RawValue> {
        let of_choice = || {
            let choices = self.choices.as_ref()?;
            choices.first.iter().chain(&choices.rest).find_map(|choice| choice.usage)
        };

        self.usage.or_else(of_choice).or(self.groq_usage)
    }

    /// The protocol that the object is an event of, if it is another one: its name in the configuration.
    pub(super) fn other_protocol(&self) -> Option<&'static str> {
        match self.kind.as_deref()? {
            "message_start" | "content_block_start" | "message" => Some("anthropic-messages"),
            kind if kind.starts_with("response.") => Some("responses"),
            _ => None,
        }
    }

    /// True for an object that reports an error, in any of the forms that servers use instead of a status.
    pub(super) fn is_error(&self) -> bool {
        self.error.is_some()
            || self.object.as_deref() == Some("error")
            || (self.choices.is_none() && (self.detail.is_some() || self.message.is_some()))
    }
}

impl<'a> Delta<'a> {
    /// A delta with a text alone.
    pub(super) fn of_text(text: Cow<'a, str>) -> Self {
        let part = ContentPart { text: Some(text), ..ContentPart::default() };
        Self { content: List { first: Some(part), rest: Vec::new() }, ..Self::default() }
    }

    /// True if it has a piece of the answer, and not just a role.
    pub(super) fn says_anything(&self) -> bool {
        self.content.first.is_some()
            || self.refusal.is_some()
            || self.reasoning_content.is_some()
            || self.reasoning.is_some()
            || self.reasoning_text.is_some()
            || self.thinking.first.is_some()
            || self.tool_calls.first.is_some()
            || self.function_call.is_some()
            || self.images.first.is_some()
            || self.audio.is_some()
    }

    /// Its text, if it has nothing else.
    pub(super) fn plain_text(&self) -> Option<&str> {
        let List { first: Some(part), rest } = &self.content else { return None };
        let is_text =
            rest.is_empty() && !part.is_reasoning && part.thinking.first.is_none() && part.image_url.is_none();
        let is_alone = self.refusal.is_none()
            && self.reasoning_content.is_none()
            && self.reasoning.is_none()
            && self.reasoning_text.is_none()
            && self.thinking.first.is_none()
            && self.reasoning_opaque.is_none()
            && self.thinking_blocks.is_none()
            && !self.is_thought
            && self.reasoning_details.is_none()
            && self.tool_calls.first.is_none()
            && self.function_call.is_none()
            && self.images.first.is_none()
            && self.audio.is_none()
            && self.annotations.is_none()
            && self.executed_tools.is_none();
        part.text.as_deref().filter(|_| is_text && is_alone)
    }
}

lenient_fields! {
    Chunk { chunk, object =>
        "id" => id: Text,
        "object" => object: Text,
        "type" => kind: Text,
        "choices" => choices,
        "usage" => usage: Raw,
        "x_groq" => { chunk.groq_usage = object.next_value::<Object<Groq<'_>>>()?.0.and_then(|groq| groq.usage); },
        "error" => error: Raw,
        "message" => message: Raw,
        "detail" => detail: Raw,
        "citations" => citations: Raw,
        "search_results" => search_results: Raw,
    }
}

lenient_fields! {
    Choice { choice, object =>
        "index" => index: Number,
        "delta" => delta: Object,
        "message" => { choice.message = object.next_value::<Object<Delta<'_>>>()?.0.map(Box::new); },
        "text" => text: Text,
        "finish_reason" => finish_reason: Text,
        "usage" => usage: Raw,
    }
}

lenient_fields! {
    Delta { delta, object =>
        "content" => content,
        "refusal" => refusal: Text,
        "reasoning_content" => reasoning_content: Text,
        "reasoning" => reasoning: Text,
        "reasoning_text" => reasoning_text: Text,
        "thinking" | "thinking_content" | "thought" | "thoughts" | "reasoning_summary" => thinking,
        "reasoning_opaque" => reasoning_opaque: Raw,
        "thinking_blocks" => thinking_blocks: Raw,
        "extra_content" => {
            let extra = object.next_value::<Object<ExtraContent<'_>>>()?.0;
            delta.is_thought = extra.is_some_and(|extra| extra.google.is_thought());
        },
        "reasoning_details" => reasoning_details: Raw,
        "tool_calls" => tool_calls,
        "function_call" => function_call: Object,
        "images" => images,
        "audio" => audio: Object,
        "annotations" => annotations: Raw,
        "executed_tools" => executed_tools: Raw,
    }
}

lenient_fields! {
    ContentPart { part, object =>
        "type" => {
            let kind = object.next_value::<Text<'_>>()?.0;
            part.is_reasoning = matches!(kind.as_deref(), Some("thinking" | "reasoning"));
        },
        "text" => text: Text,
        "thinking" => thinking,
        "image_url" => { part.image_url = object.next_value::<Object<ImageUrl<'_>>>()?.0.and_then(|image| image.url); },
    }

    fn from_text(text: Cow<'de, str>) -> Option<Self> {
        (!text.is_empty()).then(|| Self { text: Some(text), ..Self::default() })
    }
}

lenient_fields! {
    ThinkingText { thought, object =>
        "text" | "content" | "thinking" | "summary" => text: Text,
    }

    fn from_text(text: Cow<'de, str>) -> Option<Self> {
        (!text.is_empty()).then_some(Self { text: Some(text) })
    }
}

lenient_fields! {
    ImageUrl { image, object =>
        "url" => url: Text,
    }

    fn from_text(text: Cow<'de, str>) -> Option<Self> {
        (!text.is_empty()).then_some(Self { url: Some(text) })
    }
}

lenient_fields! {
    CallPiece { piece, object =>
        "index" => index: Number,
        "id" => id: Text,
        "function" => { piece.function = object.next_value::<Object<Function<'_>>>()?.0.unwrap_or_default(); },
        "custom" => custom: Object,
        // Of a call in the form of Responses.
        "name" => { piece.function.name = object.next_value::<Text<'_>>()?.0.or(piece.function.name.take()); },
        "arguments" => {
            let JsonText(arguments) = object.next_value()?;
            if piece.function.arguments.is_empty() {
                piece.function.arguments = arguments;
            }
        },
        "extra_content" => extra_content: Raw,
    }
}

lenient_fields! {
    Function { function, object =>
        "name" => name: Text,
        "arguments" | "input" => arguments: JsonText,
    }
}

lenient_fields! {
    AudioPiece { piece, object =>
        "data" => data: Text,
        "transcript" => transcript: Text,
    }
}

lenient_fields! {
    ExtraContent { extra, object =>
        "google" => { extra.google = object.next_value::<Object<Google<'_>>>()?.0.unwrap_or_default(); },
    }
}

lenient_fields! {
    Google { google, object =>
        "thought" => thought: Raw,
    }
}

lenient_fields! {
    Groq { groq, object =>
        "usage" => usage: Raw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_read_without_copying() {
        let data = br#"{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}],"usage":null}"#;
        let chunk = Chunk::parse(data).expect("an object");
        let choices = chunk.choices.expect("choices");
        assert!(choices.rest.is_empty() && chunk.usage.is_none());
        let content = choices.first.expect("a choice").delta.expect("a delta").content;
        assert!(matches!(content.first.expect("a part").text, Some(Cow::Borrowed("Hel"))));
        assert_eq!(content.rest.capacity(), 0);
    }

    #[test]
    fn values_of_other_types_are_absent() {
        for data in [
            r#"{"choices":"none","usage":7,"id":{"a":1},"x_groq":[]}"#,
            r#"{"choices":[7,"x",null,{"index":"0","delta":[1],"finish_reason":{}}]}"#,
            r#"{"choices":{"delta":{"content":{"text":"one"},"tool_calls":{"function":"x"},"audio":1,"images":2}}}"#,
            r#"{"choices":[{"index":1.0,"delta":{"content":[1,"a",{"type":5,"text":[]}],"function_call":null}}]}"#,
        ] {
            assert!(Chunk::parse(data.as_bytes()).is_some(), "{data}");
        }

        for data in ["[1]", "\"x\"", "{\"a\":", "", "nothing", "{} {}"] {
            assert!(Chunk::parse(data.as_bytes()).is_none(), "{data}");
        }
    }

    #[test]
    fn arguments_that_are_no_string_are_taken_by_their_text() {
        let arguments = |text: &str| {
            let data =
                format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"function":{{"arguments":{text}}}}}]}}}}]}}"#);
            let chunk = Chunk::parse(data.as_bytes()).expect("an object");
            let piece = chunk.choices.and_then(|choices| choices.first?.delta?.tool_calls.first).expect("a call");
            piece.function.arguments.into_owned()
        };

        assert_eq!(
            arguments(r#"{"b":1.50,"a":[ 1,{"c":null}],"\n":"x"}"#),
            r#"{"b":1.50,"a":[ 1,{"c":null}],"\n":"x"}"#
        );
        assert_eq!(arguments(r#""{\"a\":1}""#), r#"{"a":1}"#);
        assert_eq!(arguments("[1, 2]"), "[1,2]");
        assert_eq!(arguments("null"), "");
        assert_eq!(arguments("{}"), "{}");
    }
}
