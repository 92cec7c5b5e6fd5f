//! The demo agent's memory of its sessions: enough to show whether it receives, or keeps, the history.

use std::collections::{HashMap, VecDeque};

use interlingua_core::model::{AgentRequest, Message, MessageType, Role};

/// Sessions remembered; the oldest is forgotten first.
const MAX_SESSIONS: usize = 10_000;
/// Characters of a message that are remembered.
const MAX_CHARACTERS: usize = 80;

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    sessions: HashMap<(String, String), History>,
    oldest: VecDeque<(String, String)>,
}

/// One session, from the user's side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// The number of messages of the user, including this one.
    pub(super) messages: usize,
    /// The user's first message, cut.
    pub(super) first: String,
    /// The one before this.
    pub(super) previous: Option<String>,
    latest: Option<String>,
}

impl Memory {
    /// Adds the new messages, and answers all of them.
    pub(super) fn take_in(&mut self, request: &AgentRequest) -> History {
        // The gateway keeps the history: all of it is in the request.
        let has_history =
            request.input.iter().any(|message| message.role == Some(Role::Assistant) && !answers(message));
        let (Some(session), false) = (&request.session_id, has_history) else {
            return added(History::default(), request);
        };
        let key = (request.user_id.clone().unwrap_or_default(), session.clone());
        if !self.sessions.contains_key(&key) {
            self.oldest.push_back(key.clone());
            if self.oldest.len() > MAX_SESSIONS
                && let Some(oldest) = self.oldest.pop_front()
            {
                self.sessions.remove(&oldest);
            }
        }
        let history = self.sessions.entry(key).or_default();
        *history = added(std::mem::take(history), request);
        history.clone()
    }
}

/// Whether it belongs to an answer of this request: the question precedes it.
fn answers(message: &Message) -> bool {
    matches!(message.kind, MessageType::McpApprovalRequest | MessageType::FunctionCall)
}

fn added(mut history: History, request: &AgentRequest) -> History {
    let said = request.input.iter().filter(|message| is_user_message(message));
    for message in said {
        let text: String = message.text().chars().take(MAX_CHARACTERS).collect();
        if history.messages == 0 {
            history.first.clone_from(&text);
        }
        history.messages += 1;
        history.previous = history.latest.replace(text);
    }
    history
}

/// Whether a message is something the user said, as opposed to a tool's output or a decision.
pub(super) fn is_user_message(message: &Message) -> bool {
    message.kind == MessageType::Message && matches!(message.role, None | Some(Role::User))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: &str, input: Vec<Message>) -> AgentRequest {
        AgentRequest { input: input.into(), session_id: Some(session.to_owned()), ..AgentRequest::default() }
    }

    #[test]
    fn sessions_are_remembered_and_forgotten_in_order() {
        let mut memory = Memory::default();
        memory.take_in(&request("a", vec![Message::user("one")]));
        let history = memory.take_in(&request("a", vec![Message::user("two")]));
        assert_eq!((history.messages, history.first.as_str(), history.previous.as_deref()), (2, "one", Some("one")));
        for session in 0..MAX_SESSIONS {
            memory.take_in(&request(&format!("s{session}"), vec![Message::user("x")]));
        }
        assert_eq!(memory.sessions.len(), MAX_SESSIONS);
        assert_eq!(memory.take_in(&request("a", vec![Message::user("three")])).messages, 1);
    }

    #[test]
    fn a_history_in_the_request_is_not_counted_twice() {
        let mut memory = Memory::default();
        let input = vec![Message::user("one"), Message::assistant("yes"), Message::user("two")];
        for _ in 0..2 {
            assert_eq!(memory.take_in(&request("a", input.clone())).messages, 2);
        }
    }
}
