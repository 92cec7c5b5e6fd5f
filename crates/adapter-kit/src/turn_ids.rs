//! Ids for what has none in an agent's protocol, or none that can be relied on: messages, and calls of careless
//! servers.

use std::borrow::Cow;
use std::collections::HashSet;

use interlingua_core::agent_event::{AgentEvent, ResponseEvent};
use interlingua_core::model::AgentRequest;

/// Ids of servers are used up to this length, in bytes.
const MAX_ID: usize = 128;

/// Makes the ids of one turn.
#[derive(Debug)]
pub struct TurnIds {
    /// The answer's id, or the run's.
    message_prefix: String,
    /// Differs from turn to turn, which a server's id for its answer may not.
    call_prefix: String,
    messages: u32,
    calls: u32,
    /// Ids of calls in the conversation so far.
    taken: HashSet<String>,
}

impl TurnIds {
    /// Ids for the answer to a request.
    #[must_use]
    pub fn new(request: &AgentRequest) -> Self {
        let run = request.id.as_deref().filter(|id| is_usable(id)).unwrap_or("answer").to_owned();
        let plain = run.strip_prefix("response_").unwrap_or(&run);
        Self {
            // The history grows with every turn.
            call_prefix: format!("call_{plain}_{}", request.input.len()),
            message_prefix: run,
            messages: 0,
            calls: 0,
            taken: request.input.iter().flat_map(|message| message.calls()).map(|call| call.call_id).collect(),
        }
    }

    /// Messages are named after this answer of the server from now on.
    pub fn set_answer(&mut self, id: &str) {
        if is_usable(id) {
            id.clone_into(&mut self.message_prefix);
        }
    }

    /// The start of the server's answer, after which its messages are named if it has an id.
    #[must_use]
    pub fn start_answer<'a>(&mut self, id: Option<&'a str>) -> AgentEvent<'a> {
        if let Some(id) = id {
            self.set_answer(id);
        }
        let id = id.map(Cow::Borrowed);
        AgentEvent::Response(ResponseEvent { id, started: true, ..ResponseEvent::default() })
    }

    /// The id of the next message.
    pub fn message(&mut self) -> String {
        let id = format!("{}_{}", self.message_prefix, self.messages);
        self.messages += 1;
        id
    }

    /// True once a message got an id.
    #[must_use]
    pub const fn has_messages(&self) -> bool {
        self.messages > 0
    }

    /// The id of a call: the server's, unless another call of the conversation has it or the server gave none.
    pub fn call(&mut self, given: &str) -> String {
        if !given.is_empty() && self.taken.insert(given.to_owned()) {
            return given.to_owned();
        }

        loop {
            let made = format!("{}_{}", self.call_prefix, self.calls);
            self.calls += 1;
            if self.taken.insert(made.clone()) {
                return made;
            }
        }
    }
}

/// True for an id that clients can be shown: short, and without characters that mean something in a URL or a log.
fn is_usable(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use interlingua_core::model::{Content, Message, MessageType};

    use super::*;

    #[test]
    fn ids_of_a_server_are_kept_unless_they_are_taken() {
        let call = serde_json::json!({ "call_id": "call_0", "name": "f", "arguments": "{}" });
        let history = vec![Message::new(MessageType::FunctionCall, None, vec![Content::data(&call)])];
        let id = Some("response_7".to_owned());
        let mut ids = TurnIds::new(&AgentRequest { id, input: history.into(), ..AgentRequest::default() });

        let named: Vec<String> = ["a", "a", "", "call_0", "b"].iter().map(|given| ids.call(given)).collect();
        assert_eq!(named, ["a", "call_7_1_0", "call_7_1_1", "call_7_1_2", "b"]);
    }

    #[test]
    fn messages_are_named_after_the_answer_if_its_id_can_be_shown() {
        let mut ids = TurnIds::new(&AgentRequest::default());
        assert_eq!(ids.message(), "answer_0");
        for odd in ["", "a b", "a/b", "ä", &"x".repeat(129)] {
            ids.set_answer(odd);
        }

        assert_eq!(ids.message(), "answer_1");
        ids.set_answer("chatcmpl-1");
        assert_eq!(ids.message(), "chatcmpl-1_2");
    }
}
