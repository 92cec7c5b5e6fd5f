//! Estimates of memory use, in bytes.

use interlingua_core::Json;
use interlingua_core::call::RunView;
use interlingua_core::model::Message;

/// The size of a message as JSON.
pub(crate) fn message(message: &Message) -> usize {
    Json::from_serialize(message).text().len()
}

/// The size of a run: its record and the input of its turns.
pub(crate) fn run(view: RunView<'_>) -> usize {
    let input = view.run().turns.iter().flat_map(|turn| &turn.input).map(message).sum::<usize>();
    view.record.size() + input
}
