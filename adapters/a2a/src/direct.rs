//! Answers that are a message and no task (section 13, rule 6): when they are, and what they hold.

use interlingua_core::End;
use interlingua_core::call::{RunState, RunView};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::run::Run;

use crate::options::ReplyAs;
use crate::says::{self, Hint};
use crate::wire::Message;

/// Under which terms a task was promised to be told as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// If the agent says so.
    Hinted,
    /// If it ends plainly.
    Always,
}

/// How a new task may be answered. `blocking`: nothing is shown before its end.
pub(crate) const fn mode(reply: ReplyAs, blocking: bool) -> Option<Mode> {
    match reply {
        ReplyAs::Message => Some(Mode::Always),
        ReplyAs::Auto => Some(Mode::Hinted),
        ReplyAs::Task if blocking => Some(Mode::Hinted),
        ReplyAs::Task => None,
    }
}

/// Whether a message's announcement promises a direct answer.
pub(crate) fn promised(run: &Run, message: u32) -> bool {
    run.messages.get(message as usize).is_some_and(|message| {
        message.announced == MessageType::Message && Hint::of(message.announced_metadata.as_ref()).wants_message()
    })
}

/// The direct answer that a finished run is. None: it is a task.
pub(crate) fn reply<'r>(mode: Mode, view: RunView<'r>) -> Option<Message<'r>> {
    let plain = view.about.state == RunState::Ended(End::Completed) && view.run().turns.len() == 1;
    if !plain {
        return None;
    }
    match mode {
        Mode::Always => answer(view.run()),
        Mode::Hinted => answer(view.run()).filter(|_| wants(view.run())),
    }
}

fn wants(run: &Run) -> bool {
    run.messages.iter().any(|message| {
        is_answer(message)
            && (Hint::of(message.metadata.as_ref()).wants_message()
                || Hint::of(message.announced_metadata.as_ref()).wants_message())
    })
}

fn is_answer(message: &interlingua_core::run::Message) -> bool {
    message.announced == MessageType::Message && message.role == Role::Assistant
}

/// Everything the agent answered, in one message. None if that is nothing.
pub(crate) fn answer(run: &Run) -> Option<Message<'_>> {
    let parts: Vec<_> = run.messages.iter().filter(|message| is_answer(message)).flat_map(says::contents).collect();
    if parts.is_empty() {
        return None;
    }
    let mut message = Message::agent(run.id.to_prefixed("reply_"), parts);
    message.context = Some(run.session_id.as_str().into());
    Some(message)
}
