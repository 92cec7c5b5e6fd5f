//! The calls that a stream announced, for the next stream of the conversation (docs/protocols/ag-kit.md#order-1,
//! docs/protocols/ag-kit.md#order-2).
//!
//! They are stored in the labels of the run, so that a replay has the same data. Not here: the conversation's history.

use std::collections::{HashMap, HashSet};

use interlingua_core::Json;
use interlingua_core::call::RunView;
use interlingua_core::run::Run;
use serde::{Deserialize, Serialize};

/// Maximum number of remembered calls: upstreams only ever repeat recent ones.
const MAX_CALLS: usize = 256;

/// The calls of a conversation, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    calls: Vec<KnownCall>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownCall {
    id: String,
    /// True if the call's result was sent.
    done: bool,
}

impl Memory {
    /// The memory for the run after this one.
    pub(crate) fn after(view: &RunView<'_>) -> Self {
        // The client of this protocol has not seen what was sent over another protocol.
        if view.info.protocol != <crate::AgKit as interlingua_core::ProtocolAdapter>::NAME {
            return Self::default();
        }

        let mut memory: Self = view.info.labels.decode().unwrap_or_default();
        memory.add(view.run());
        memory
    }

    fn add(&mut self, run: &Run) {
        let mut index_of: HashMap<String, usize> =
            self.calls.iter().enumerate().map(|(index, call)| (call.id.clone(), index)).collect();
        // The client produced the results of its own tools, so it has seen them.
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
                    let index = *index_of.entry(head.call_id.clone()).or_insert(self.calls.len());
                    if index == self.calls.len() {
                        self.calls.push(KnownCall { id: head.call_id.clone(), done: false });
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

    /// Serializes the memory for the run's labels.
    pub(crate) fn to_labels(&self) -> Json {
        if self.calls.is_empty() { Json::null() } else { Json::from_serialize(self) }
    }

    /// The calls, each with whether its result was sent.
    pub(crate) fn into_calls(self) -> impl Iterator<Item = (String, bool)> {
        self.calls.into_iter().map(|call| (call.id, call.done))
    }
}
