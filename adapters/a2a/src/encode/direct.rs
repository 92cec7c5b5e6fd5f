//! Replies that are a message instead of a task (docs/protocols/a2a.md#direct-messages): the conditions, and the
//! content.

use interlingua_core::End;
use interlingua_core::call::{RunState, RunView};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::run::Run;

use crate::encode::render::{self, Hint};
use crate::options::ReplyAs;
use crate::wire::Message;

/// When a new task may be answered with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectMode {
    /// If the agent asks for it in its message metadata.
    Hinted,
    /// If the run completes in one turn.
    Always,
}

/// The mode for a new task; `None` if the reply is always a task. `blocking`: the client sees nothing before the end.
pub(crate) const fn mode(reply: ReplyAs, blocking: bool) -> Option<DirectMode> {
    match reply {
        ReplyAs::Message => Some(DirectMode::Always),
        ReplyAs::Auto => Some(DirectMode::Hinted),
        ReplyAs::Task if blocking => Some(DirectMode::Hinted),
        ReplyAs::Task => None,
    }
}

/// True if the metadata at the start of a message asks for a direct reply.
pub(crate) fn is_announced(run: &Run, message: u32) -> bool {
    run.messages.get(message as usize).is_some_and(|message| {
        message.announced == MessageType::Message
            && Hint::from_metadata(message.announced_metadata.as_ref()).wants_message()
    })
}

/// The direct reply of a finished run. `None`: reply with the task.
pub(crate) fn direct_reply<'r>(mode: DirectMode, view: RunView<'r>) -> Option<Message<'r>> {
    let plain = view.info.state == RunState::Ended(End::Completed) && view.run().turns.len() == 1;
    if !plain {
        return None;
    }

    match mode {
        DirectMode::Always => collect_answer(view.run()),
        DirectMode::Hinted => collect_answer(view.run()).filter(|_| is_hinted(view.run())),
    }
}

fn is_hinted(run: &Run) -> bool {
    run.messages.iter().any(|message| {
        is_answer(message)
            && (Hint::from_metadata(message.metadata.as_ref()).wants_message()
                || Hint::from_metadata(message.announced_metadata.as_ref()).wants_message())
    })
}

fn is_answer(message: &interlingua_core::run::Message) -> bool {
    message.announced == MessageType::Message && message.role == Role::Assistant
}

/// All answers of the agent as one message. `None` if they have no content.
pub(crate) fn collect_answer(run: &Run) -> Option<Message<'_>> {
    let parts: Vec<_> = run.messages.iter().filter(|message| is_answer(message)).flat_map(render::contents).collect();
    if parts.is_empty() {
        return None;
    }

    let mut message = Message::agent(run.id.to_prefixed("reply_"), parts);
    message.context = Some(run.session_id.as_str().into());
    Some(message)
}
