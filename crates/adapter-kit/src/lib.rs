//! Code that adapters of several protocols share: the formats of model servers, texts, ids of calls, data URLs,
//! transcripts.
//!
//! No I/O. Not here: the canonical model and the contracts (`interlingua-core`).

pub mod answer_parts;
pub mod call_ids;
pub mod call_ledger;
pub mod call_output;
pub mod contents;
pub mod data_url;
pub mod delta_template;
pub mod emitted_text;
pub mod end_reason;
pub mod fallback;
pub mod held;
pub mod links;
pub mod markdown;
pub mod mislabeled;
pub mod model_list;
pub mod model_options;
pub mod model_probe;
pub mod openai_api;
pub mod openai_error;
pub mod openai_list;
pub mod output_parts;
pub mod sequencer;
pub mod shown_text;
pub mod source_parts;
pub mod sticky;
pub mod template;
pub mod text_ledger;
pub mod token_estimate;
pub mod token_usage;
pub mod transcript;
pub mod turn_ids;
pub mod unique_calls;
pub mod wire_names;

/// The snippets of the operator's console: the templates `console/python.template` and `console/typescript.template`
/// beside the file that calls the macro.
#[macro_export]
macro_rules! console_snippets {
    () => {
        ::interlingua_core::console::ClientSnippets {
            python: Some(include_str!("console/python.template")),
            typescript: Some(include_str!("console/typescript.template")),
        }
    };
}
