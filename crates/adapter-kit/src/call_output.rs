//! The output of a call in an answer, whatever form an agent gives it.

use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Body, ToolOutput};
use interlingua_core::run::Slot;

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
