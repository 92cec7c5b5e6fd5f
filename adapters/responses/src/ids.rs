//! Ids as this protocol spells them: derived from a run and a place in it, so that stream, object and replay agree
//! and a reference finds its way back without a table (sections 7 and 9).

use std::fmt::Write as _;

use interlingua_core::RunId;
use interlingua_core::call::SessionItem;
use interlingua_core::model::{Message, MessageType};

/// In front of a response's digits.
pub(crate) const RESPONSE: &str = "resp_";
/// In front of a conversation's digits.
pub(crate) const CONVERSATION: &str = "conv_";

/// What follows a prefix, if it is 32 hexadecimal digits as this gateway writes them.
fn digits(text: &str) -> Option<RunId> {
    let ours = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if ours { RunId::parse(text) } else { None }
}

/// The run of a response's id, or of a run's in any other spelling: runs of other protocols are responses too.
pub(crate) fn response(id: &str) -> Option<RunId> {
    RunId::parse(id)
}

/// Whether an id could be a conversation's.
pub(crate) fn is_conversation(id: &str) -> bool {
    id.strip_prefix(CONVERSATION).and_then(digits).is_some()
}

/// The id of an output item: of a message as a whole, or of one of its contents.
pub(crate) fn output(prefix: &str, run: RunId, message: usize, content: usize) -> String {
    let mut id = run.to_prefixed(prefix);
    let written = if content == 0 { write!(id, "_{message}") } else { write!(id, "_{message}_{content}") };
    debug_assert!(written.is_ok(), "writing into a string does not fail");
    id
}

/// The id of an input item that came without one.
pub(crate) fn input(prefix: &str, run: RunId, turn: usize, index: usize) -> String {
    format!("{prefix}{}_in{turn}_{index}", run.to_prefixed(""))
}

/// Where an item stands in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In an answer.
    Output {
        /// The message.
        message: usize,
        /// The content, where the item is one of several in its message.
        content: usize,
    },
    /// In what the client said.
    Input {
        /// The turn.
        turn: usize,
        /// Its place in the turn's input.
        index: usize,
    },
}

/// Reads the id of an item: the run, and its place there. None for ids that are not this gateway's.
pub(crate) fn place(id: &str) -> Option<(RunId, Place)> {
    let mut pieces = id.split('_');
    let _prefix = pieces.next()?;
    let run = digits(pieces.next()?)?;
    let first = pieces.next()?;
    let second = pieces.next().map(str::parse).transpose().ok()?;
    if pieces.next().is_some() {
        return None;
    }
    let place = match first.strip_prefix("in") {
        Some(turn) => Place::Input { turn: turn.parse().ok()?, index: second? },
        None => Place::Output { message: first.parse().ok()?, content: second.unwrap_or(0) },
    };
    Some((run, place))
}

/// What stands in front of the ids of items made of such messages.
pub(crate) fn prefix(kind: &MessageType) -> &'static str {
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

/// The id of a message of a turn's input: its own, else a derived one.
pub(crate) fn of_input(message: &Message, run: RunId, turn: usize, index: usize) -> String {
    message.id.clone().unwrap_or_else(|| input(prefix(&message.kind), run, turn, index))
}

/// The id of something said in a session: as it is in its response, where it was said in one.
pub(crate) fn of_session(item: &SessionItem) -> String {
    match place(&item.id) {
        Some((run, Place::Input { turn, index })) if item.run == Some(run) => of_input(&item.message, run, turn, index),
        Some((run, Place::Output { message, content })) if item.run == Some(run) => {
            output(prefix(&item.message.kind), run, message, content)
        }
        _ => item.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "019a0000000070008000000000000001";

    #[test]
    fn an_item_is_found_by_its_id() {
        let run = RunId::parse(RUN).expect("digits");
        for (prefix, message, content) in [("msg_", 0, 0), ("fc_", 12, 3), ("rs_", 7, 0)] {
            let id = output(prefix, run, message, content);
            assert!(id.len() <= 64, "{id}");
            assert_eq!(place(&id), Some((run, Place::Output { message, content })), "{id}");
        }
        let id = input("msg_", run, 1, 40);
        assert_eq!(place(&id), Some((run, Place::Input { turn: 1, index: 40 })), "{id}");
        for strange in [
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
            assert_eq!(place(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_response_is_found_by_every_spelling_of_its_run() {
        let run = RunId::parse(RUN).expect("digits");
        for spelling in [run.to_prefixed(RESPONSE), RUN.to_owned(), run.to_string(), format!("response_{run}")] {
            assert_eq!(response(&spelling), Some(run), "{spelling}");
        }
        for strange in ["resp_", "resp_1", "", "conv_x"] {
            assert_eq!(response(strange), None, "{strange}");
        }
        assert!(is_conversation(&run.to_prefixed(CONVERSATION)) && !is_conversation("s-7"));
    }
}
