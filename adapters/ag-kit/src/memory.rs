//! What of a conversation the next stream has to know: which calls were announced in it (section 5, rules 1 and 2).
//!
//! It travels in the labels of the run, so a replay of the run knows the same. Not here: the conversation's history.

use std::collections::{HashMap, HashSet};

use interlingua_core::Json;
use interlingua_core::call::RunView;
use interlingua_core::run::Run;
use serde::{Deserialize, Serialize};

/// Calls that are remembered: upstreams repeat recent ones, if any.
const MAX_CALLS: usize = 256;

/// The calls of a conversation, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    calls: Vec<Known>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    id: String,
    /// Whether its result was told.
    done: bool,
}

impl Memory {
    /// What the run after this one has to know.
    pub(crate) fn after(view: &RunView<'_>) -> Self {
        // What was told over another protocol was told to somebody else.
        if view.about.protocol != <crate::AgKit as interlingua_core::ProtocolAdapter>::NAME {
            return Self::default();
        }
        let mut memory: Self = view.about.labels.decode().unwrap_or_default();
        memory.add(view.run());
        memory
    }

    fn add(&mut self, run: &Run) {
        let mut known: HashMap<String, usize> =
            self.calls.iter().enumerate().map(|(at, call)| (call.id.clone(), at)).collect();
        // The client has seen the result of its own tools: it made them.
        let answered: Vec<String> = run
            .turns
            .iter()
            .flat_map(|turn| &turn.input)
            .flat_map(|message| message.outputs())
            .map(|output| output.call_id)
            .collect();
        for message in &run.messages {
            for slot in &message.slots {
                if let Some(head) = &slot.call {
                    let at = *known.entry(head.call_id.clone()).or_insert(self.calls.len());
                    if at == self.calls.len() {
                        self.calls.push(Known { id: head.call_id.clone(), done: false });
                    }
                }
            }
        }
        let results: HashSet<String> = run
            .messages
            .iter()
            .filter(|message| message.kind.is_output())
            .flat_map(|message| message.slots.iter().filter_map(|slot| slot.output()))
            .map(|output| output.call_id)
            .chain(answered)
            .collect();
        for call in &mut self.calls {
            call.done |= results.contains(&call.id);
        }
        let surplus = self.calls.len().saturating_sub(MAX_CALLS);
        self.calls.drain(..surplus);
    }

    /// As it travels.
    pub(crate) fn to_labels(&self) -> Json {
        if self.calls.is_empty() { Json::null() } else { Json::from_serialize(self) }
    }

    /// The calls, and whether the result of each was told.
    pub(crate) fn into_calls(self) -> impl Iterator<Item = (String, bool)> {
        self.calls.into_iter().map(|call| (call.id, call.done))
    }
}
