//! The output of a call in an answer, whatever form an agent gives it.

use interlingua_core::event::End;
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Body, ToolOutput};
use interlingua_core::run::{Message, Slot};

/// The output in a finished content of an output message. `None`: the content is no output.
#[must_use]
pub fn parse(slot: &Slot) -> Option<ToolOutput> {
    match &slot.value.as_ref().map(|value| &value.body) {
        Some(Body::Data(data)) => Some(in_data(data)),
        None if !slot.text().is_empty() => Some(ToolOutput { output: slot.text().to_owned(), ..ToolOutput::default() }),
        _ => None,
    }
}

/// The output that the data of an output message say.
#[must_use]
pub fn in_data(data: &Json) -> ToolOutput {
    let mut output: ToolOutput = data.decode().unwrap_or_default();
    // Component outputs have no defined body: the complete data is the result.
    if data.decode::<Extra>().is_none_or(|fields| fields.get("output").is_none()) {
        data.text().clone_into(&mut output.output);
    }
    output
}

/// The outputs in a finished output message, with the indexes of their contents. A content of another form is an output
/// as a whole. A failed tool may have no content: its output is its error.
#[must_use]
pub fn of_message(message: &Message) -> Vec<(usize, ToolOutput)> {
    let whole = |output| ToolOutput { output, ..ToolOutput::default() };
    let of_slot = |slot: &Slot| {
        let output = slot.output().filter(|output| !output.call_id.is_empty() || !output.output.is_empty());
        output.unwrap_or_else(|| whole(slot.data().map_or_else(|| slot.text(), Json::text).to_owned()))
    };
    if message.slots.is_empty() && has_failed(message) {
        return vec![(0, whole(message.message.clone().unwrap_or_default()))];
    }
    message.slots.iter().map(of_slot).enumerate().collect()
}

/// True for the message of a tool that failed.
#[must_use]
pub const fn has_failed(message: &Message) -> bool {
    matches!(message.end, Some(End::Failed)) || message.code.is_some()
}

/// The text of a failed tool's output: the output, or else the error of the message.
#[must_use]
pub fn failure_text(message: &Message, output: String) -> String {
    let error = Some(output).filter(|text| !text.is_empty()).or_else(|| message.message.clone());
    error.unwrap_or_else(|| "the tool failed".to_owned())
}

/// The text of a JSON list of text blocks, which some frameworks return. `None`: the output is anything else.
#[must_use]
pub fn text_of_blocks(output: &str) -> Option<String> {
    let blocks: Vec<Extra> = Json::parse(output)?.decode()?;
    if blocks.is_empty() {
        return None;
    }

    let text = |block: &Extra| {
        let kind: String = block.get("type")?.decode()?;
        let text: String = block.get("text")?.decode()?;
        (kind == "text").then_some(text)
    };
    blocks.iter().map(text).collect()
}
