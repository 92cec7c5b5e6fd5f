//! The canonical model and the adapter contract.
//!
//! [`model`] holds requests, messages and contents as the Agent API defines them. [`event`] describes an answer as it
//! streams and [`run`] its accumulated state. [`call`] lists what a client can request and [`fault`] what can go wrong.
//! A protocol adapter implements [`exchange`] (client side), [`connector`] (upstream side), or both.
//!
//! Not here: sockets, clocks, random numbers, threads, runtimes. The caller passes in the time and new ids, so
//! everything in this crate can be tested without I/O. Code that waits lives in the gateway.

pub mod agent_api;
pub mod agent_event;
pub mod answer;
pub mod builder;
pub mod call;
pub mod call_ids;
pub mod call_output;
pub mod capability;
pub mod client_tool;
pub mod connector;
pub mod contents;
pub mod data_url;
pub mod duration;
pub mod emitted_text;
pub mod end_reason;
pub mod error_class;
pub mod event;
pub mod exchange;
pub mod fallback;
pub mod fault;
pub mod filter;
pub mod held;
pub mod http_request;
pub mod http_url;
pub mod id;
pub mod journal;
pub mod json;
pub mod json_repair;
pub mod json_string;
pub mod lenient;
pub mod links;
pub mod loss;
pub mod markdown;
pub mod method;
pub mod mislabeled;
pub mod model;
pub mod model_error;
pub mod model_list;
pub mod model_options;
pub mod model_probe;
pub mod network;
pub mod normalize;
pub mod opaque;
pub mod openai_api;
pub mod openai_error;
pub mod openai_list;
pub mod options;
pub mod out;
pub mod output_parts;
pub mod owner;
pub mod pending;
pub mod policy;
pub mod probe;
pub mod public_address;
pub mod push;
pub mod rate;
pub mod read;
pub mod recording;
pub mod run;
pub mod sample;
pub mod sequencer;
pub mod shown_text;
pub mod size;
pub mod source_parts;
pub mod sse;
pub mod step;
pub mod sticky;
pub mod template;
pub mod text_ledger;
pub mod time;
pub mod token_estimate;
pub mod token_usage;
pub mod tool_schema;
pub mod transcript;
pub mod turn_ids;
pub mod unique_calls;
pub mod well_known;
pub mod wire_names;

pub mod tree;

pub use call::{Call, Delivery, Reply, RunCall, Thread};
pub use event::{End, Event};
pub use exchange::{AuthScheme, Endpoint, Exchange, Flow, Method, Mount, Next, ProtocolAdapter, Request};
pub use fault::{Blame, Fault, FaultKind, LimitState};
pub use id::RunId;
pub use json::{Extra, Json};
pub use loss::{Change, ContentKind, Loss, Losses};
pub use out::Out;
pub use owner::Owner;
pub use policy::RunPolicy;
pub use run::{Record, Run};
pub use step::Step;
