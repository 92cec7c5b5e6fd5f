//! Sentences about a run for people.

use interlingua_core::filter::truncated;
use interlingua_core::model::{ContentType, MessageType};
use interlingua_core::run::{Message, Run, Slot};

use crate::progress::news::tail;
use crate::result::is_answer;

/// Names of tools are cut to this length, in bytes.
const MAX_NAME: usize = 100;

/// The agent has begun a call.
pub(super) fn call(name: &str) -> String {
    format!("Calls {}", shown(name))
}

/// The output of a call has arrived.
pub(super) fn output(run: &Run, slot: &Slot) -> String {
    let output = slot.output().unwrap_or_default();
    let heads = run.messages.iter().flat_map(|message| message.slots.iter()).filter_map(|slot| slot.call.as_ref());
    let called = || heads.clone().find(|head| head.call_id == output.call_id).map(|head| head.name.clone());
    let name = output.name.clone().filter(|name| !name.is_empty()).or_else(called).unwrap_or_default();
    format!("Got the answer of {}", shown(&name))
}

/// The text of an error after which the run continues. `None`: it has none.
pub(super) fn error(message: &Message) -> Option<String> {
    let own = message.message.clone().filter(|text| !text.trim().is_empty());
    let text = own.unwrap_or_else(|| message.text());
    (!text.trim().is_empty()).then(|| tail(&text).to_owned())
}

/// The latest news of a run: the end of its text, or its last call. `None`: nothing has happened yet.
pub(crate) fn status_message(run: &Run) -> Option<String> {
    run.messages.iter().rev().find_map(|message| match &message.kind {
        MessageType::Message if is_answer(message) => {
            let texts = message.slots.iter().filter(|slot| slot.kind == ContentType::Text && slot.call.is_none());
            let text: String = texts.map(Slot::text).collect();
            (!text.trim().is_empty()).then(|| tail(&text).to_owned())
        }
        MessageType::Error => error(message),
        MessageType::FunctionCall | MessageType::FunctionCallOutput => None,
        kind if kind.is_call() => Some(call(&message.slots.iter().find_map(|slot| slot.call.as_ref())?.name)),
        kind if kind.is_output() => Some(output(run, message.slots.iter().find(|slot| slot.finished)?)),
        _ => None,
    })
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "a tool" } else { truncated(name, MAX_NAME) }
}
