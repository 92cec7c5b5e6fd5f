//! The exchanges of an MCP server: requests of both styles at one endpoint, streams of sessions, and metadata for OAuth
//! clients.
//!
//! `post` reads a message and dispatches it; `call` holds the live answer to a call of a tool, `question` the answers to
//! its questions. `shared` has the parts of a request that all operations of its exchange need. Not here: the
//! translation of calls, results, questions and tasks, which are modules of the crate.

mod call;
mod cancel;
mod challenge;
mod delete;
mod events;
mod fallback;
mod get;
mod lookup;
mod metadata;
mod methods;
mod operation;
mod post;
mod question;
mod refusal;
mod route;
mod session;
mod shared;
mod streams;
mod writer;

pub(crate) use challenge::METADATA_PATH;
pub(crate) use delete::Delete;
pub(crate) use fallback::Fallback;
pub(crate) use get::Get;
pub(crate) use metadata::Metadata;
pub(crate) use post::Post;
pub(crate) use route::Route;
