//! The canonical model and the adapter contract.
//!
//! [`model`] defines requests, messages and contents as the Agent API does. [`event`] describes an answer as it
//! streams, and [`run`] its accumulated state. [`call`] lists the requests of clients, and [`fault`] the errors. A
//! protocol adapter implements [`exchange`] (client side), [`connector`] (upstream side), or both.
//!
//! Not here: sockets, clocks, random numbers, threads, runtimes. The caller passes in the time and new ids, so
//! everything in this crate can be tested without I/O. Code that waits lives in the gateway.

pub mod agent_api;
pub mod agent_event;
pub mod answer;
mod auth_scheme;
pub mod call;
pub mod capability;
pub mod client_tool;
pub mod connector;
pub mod console;
pub mod duration;
pub mod error_class;
pub mod event;
pub mod exchange;
pub mod fault;
pub mod filter;
pub mod http_request;
pub mod http_url;
pub mod id;
pub mod journal;
pub mod json;
pub mod json_repair;
pub mod json_string;
pub mod lenient;
pub mod link;
pub mod loss;
pub mod media_types;
pub mod method;
pub mod model;
pub mod model_error;
pub mod network;
pub mod normalize;
pub mod opaque;
pub mod options;
pub mod out;
pub mod owner;
pub mod pending;
pub mod policy;
pub mod probe;
pub mod public_address;
pub mod push;
pub mod read;
pub mod recording;
pub mod run;
pub mod sample;
pub mod seal;
pub mod server_signs;
pub mod size;
pub mod sse;
pub mod step;
pub mod time;
pub mod tool_schema;
pub mod well_known;

pub mod tree;

pub use answer::{Answer, AnswerBody};
pub use call::{Call, Delivery, Reply, RunCall, RunView, Target, Thread};
pub use capability::ClientCapabilities;
pub use event::{End, Event};
pub use exchange::{AuthScheme, Endpoint, Exchange, Flow, Method, Mount, Mounted, Next, ProtocolAdapter, Request};
pub use fault::{Blame, Fault, FaultKind, LimitState};
pub use id::RunId;
pub use json::{Extra, Json};
pub use loss::{Change, ContentKind, Loss, Losses};
pub use out::{Head, Out};
pub use owner::Owner;
pub use policy::RunPolicy;
pub use run::{Record, Run};
pub use step::Step;
