//! The JSON-RPC envelope: messages, their ids and errors, the revision of a request, and the checks of its headers.

mod client;
mod id;
mod message;
mod request;
pub(crate) mod rpc_error;

pub(crate) use client::{ClientAbilities, TASKS_EXTENSION, missing_tasks};
pub(crate) use id::{RpcId, is_progress_token};
pub(crate) use message::{Message, MessageKind, Params};
pub(crate) use request::{Era, check_modern, era};
pub(crate) use rpc_error::RpcError;
