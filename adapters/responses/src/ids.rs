//! Ids of this protocol. They are derived from a run and a position in it, so that stream, object and replay agree and
//! a reference can be resolved without a lookup table (sections 7 and 9).

use std::fmt::Write as _;

use interlingua_core::RunId;
use interlingua_core::call::SessionItem;
use interlingua_core::model::{Message, MessageType};

/// Prefix of response ids.
pub(crate) const RESPONSE_PREFIX: &str = "resp_";
/// Prefix of conversation ids.
pub(crate) const CONVERSATION_PREFIX: &str = "conv_";

/// Parses what follows a prefix: 32 lower-case hexadecimal digits, as this gateway writes them.
fn parse_digits(text: &str) -> Option<RunId> {
    let is_ours = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_ours { RunId::parse(text) } else { None }
}

/// Parses a response id, or a run id in the form of any other protocol: runs of other protocols are responses too.
pub(crate) fn parse_response_id(id: &str) -> Option<RunId> {
    RunId::parse(id)
}

/// True if an id has the form of a conversation id.
pub(crate) fn is_conversation(id: &str) -> bool {
    id.strip_prefix(CONVERSATION_PREFIX).and_then(parse_digits).is_some()
}

/// The id of an output item. `content` is 0 if the item is the complete message.
pub(crate) fn output_item_id(prefix: &str, run: RunId, message: usize, content: usize) -> String {
    let mut id = run.to_prefixed(prefix);
    let written = if content == 0 { write!(id, "_{message}") } else { write!(id, "_{message}_{content}") };

    debug_assert!(written.is_ok(), "writing into a string does not fail");
    id
}

/// The id of an input item for which the client sent none.
pub(crate) fn new_input_item_id(prefix: &str, run: RunId, turn: usize, index: usize) -> String {
    format!("{prefix}{}_in{turn}_{index}", run.to_prefixed(""))
}

/// Position of an item in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemLocation {
    /// In the agent's output.
    Output {
        /// Index of the message in the run.
        message: usize,
        /// Index of the content, if the item is one of several in its message; else 0.
        content: usize,
    },
    /// In the client's input.
    Input {
        /// Index of the turn in the run.
        turn: usize,
        /// Index of the message in the turn's input.
        index: usize,
    },
}

/// Parses the id of an item into the run and the location in it. `None` for ids this gateway did not create.
pub(crate) fn parse_item_id(id: &str) -> Option<(RunId, ItemLocation)> {
    let mut pieces = id.split('_');
    let _prefix = pieces.next()?;
    let run = parse_digits(pieces.next()?)?;
    let first = pieces.next()?;
    let second = pieces.next().map(str::parse).transpose().ok()?;
    if pieces.next().is_some() {
        return None;
    }

    let location = match first.strip_prefix("in") {
        Some(turn) => ItemLocation::Input { turn: turn.parse().ok()?, index: second? },
        None => ItemLocation::Output { message: first.parse().ok()?, content: second.unwrap_or(0) },
    };
    Some((run, location))
}

/// Prefix of the ids of items made from messages of a type.
pub(crate) fn item_prefix(kind: &MessageType) -> &'static str {
    match kind {
        MessageType::Reasoning => "rs_",
        MessageType::FunctionCall => "fc_",
        MessageType::FunctionCallOutput => "fco_",
        MessageType::PluginCall | MessageType::ComponentCall | MessageType::McpCall => "mcp_",
        MessageType::PluginCallOutput | MessageType::ComponentCallOutput | MessageType::McpCallOutput => "mcpo_",
        MessageType::McpListTools => "mcpl_",
        MessageType::McpApprovalRequest => "mcpr_",
        MessageType::McpApprovalResponse => "mcpa_",
        _ => "msg_",
    }
}

/// The id of an input message: its own, else a derived one.
pub(crate) fn input_item_id(message: &Message, run: RunId, turn: usize, index: usize) -> String {
    message.id.clone().unwrap_or_else(|| new_input_item_id(item_prefix(&message.kind), run, turn, index))
}

/// The id of a session item. An item that belongs to a response has the id it has there.
pub(crate) fn session_item_id(item: &SessionItem) -> String {
    match parse_item_id(&item.id) {
        Some((run, ItemLocation::Input { turn, index })) if item.run == Some(run) => {
            input_item_id(&item.message, run, turn, index)
        }
        Some((run, ItemLocation::Output { message, content })) if item.run == Some(run) => {
            output_item_id(item_prefix(&item.message.kind), run, message, content)
        }
        _ => item.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "019a0000000070008000000000000001";

    #[test]
    fn an_item_id_is_parsed_back_into_its_location() {
        let run = RunId::parse(RUN).expect("digits");
        for (prefix, message, content) in [("msg_", 0, 0), ("fc_", 12, 3), ("rs_", 7, 0)] {
            let id = output_item_id(prefix, run, message, content);
            assert!(id.len() <= 64, "{id}");
            assert_eq!(parse_item_id(&id), Some((run, ItemLocation::Output { message, content })), "{id}");
        }

        let id = new_input_item_id("msg_", run, 1, 40);
        assert_eq!(parse_item_id(&id), Some((run, ItemLocation::Input { turn: 1, index: 40 })), "{id}");

        for invalid in [
            "",
            "msg_",
            "msg_1",
            "msg_0_1",
            &format!("msg_{RUN}"),
            &format!("msg_{RUN}_x"),
            &format!("msg_{RUN}_1_2_3"),
            &format!("msg_{RUN}_in1"),
            "appr_1",
        ] {
            assert_eq!(parse_item_id(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn every_form_of_a_run_id_is_a_response_id() {
        let run = RunId::parse(RUN).expect("digits");
        for id in [run.to_prefixed(RESPONSE_PREFIX), RUN.to_owned(), run.to_string(), format!("response_{run}")] {
            assert_eq!(parse_response_id(&id), Some(run), "{id}");
        }

        for invalid in ["resp_", "resp_1", "", "conv_x"] {
            assert_eq!(parse_response_id(invalid), None, "{invalid}");
        }

        assert!(is_conversation(&run.to_prefixed(CONVERSATION_PREFIX)) && !is_conversation("s-7"));
    }
}
