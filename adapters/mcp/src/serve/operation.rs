//! The operations of messages.

use serde_json::Value;

use super::call::ToolCall;
use super::cancel::Cancel;
use super::lookup::{Lookup, PageRequest};
use super::question::QuestionAnswer;
use crate::listen::Subscription;
use crate::tasks::TaskRequest;

/// The operation that a message asks for.
pub(super) enum Operation {
    /// Nothing: the message is accepted.
    Accept,
    /// The result is known.
    Result(Value),
    /// A list of what the caller may use.
    List(PageRequest),
    /// A resource, or the completion of an argument.
    Lookup(Lookup),
    /// A call of a tool.
    Call(Box<ToolCall>),
    /// A method on a task.
    Task(Box<TaskRequest>),
    /// A subscription.
    Listen(Box<Subscription>),
    /// A cancelled call.
    Cancel(Cancel),
    /// An answer to a question on a stream.
    Answer(Box<QuestionAnswer>),
}
