//! Changes and omissions of a translation, so that no loss is silent.
//!
//! An adapter records a loss where it drops or changes content: a connector in its turn
//! ([`AgentTurn::losses`](crate::connector::AgentTurn::losses)), a client protocol in its exchange
//! ([`Exchange::losses`](crate::exchange::Exchange::losses)). Not here: counting and logging them (the gateway), and
//! the table of all pairs (`docs/matrix.md`).

use std::fmt;

use serde::Serialize;

/// A kind of content: a row of `docs/matrix.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentKind {
    /// Texts of either side.
    Text,
    /// The agent's reasoning.
    Reasoning,
    /// A refusal in words.
    Refusal,
    /// The division of contents into messages, and their order.
    Structure,
    /// A call that the agent runs itself.
    AgentCall,
    /// The output of such a call.
    AgentOutput,
    /// A call that the client runs.
    ClientCall,
    /// The output of such a call.
    ClientOutput,
    /// The failure of the client's tool, beside its output.
    ToolFailure,
    /// The tools that a client declares.
    ToolDeclaration,
    /// The tools that a client allows or demands.
    ToolChoice,
    /// A call that needs a person's approval.
    Approval,
    /// Other arguments that a person gives a call.
    ApprovalEdit,
    /// The reason of a decision.
    ApprovalReason,
    /// A question to the client's user.
    Question,
    /// The schema of its answer.
    Schema,
    /// A login outside of the conversation.
    Login,
    /// Images in requests.
    ImageIn,
    /// Audio in requests.
    AudioIn,
    /// Video in requests.
    VideoIn,
    /// Files in requests.
    FileIn,
    /// JSON in requests.
    DataIn,
    /// Images in answers.
    ImageOut,
    /// Audio in answers.
    AudioOut,
    /// Video in answers.
    VideoOut,
    /// Files in answers.
    FileOut,
    /// JSON in answers.
    DataOut,
    /// Citations and other notes on a text.
    Annotation,
    /// The token usage of an answer.
    Usage,
    /// The reason for the end of an answer.
    EndReason,
    /// The code of an error.
    ErrorCode,
    /// Instructions of the client.
    Instructions,
    /// Parameters of the model, such as a temperature.
    Sampling,
    /// The requested form of an answer.
    OutputFormat,
    /// Earlier turns.
    History,
    /// The identity of the client's user.
    User,
    /// Application data.
    Metadata,
    /// Events of one protocol for which the model has no type.
    ProtocolEvent,
    /// Values that only their author can read, such as signatures.
    Opaque,
    /// The destination of a request.
    Routing,
}

impl ContentKind {
    /// The value in log lines and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::Refusal => "refusal",
            Self::Structure => "structure",
            Self::AgentCall => "agent_call",
            Self::AgentOutput => "agent_output",
            Self::ClientCall => "client_call",
            Self::ClientOutput => "client_output",
            Self::ToolFailure => "tool_failure",
            Self::ToolDeclaration => "tool_declaration",
            Self::ToolChoice => "tool_choice",
            Self::Approval => "approval",
            Self::ApprovalEdit => "approval_edit",
            Self::ApprovalReason => "approval_reason",
            Self::Question => "question",
            Self::Schema => "schema",
            Self::Login => "login",
            Self::ImageIn => "image_in",
            Self::AudioIn => "audio_in",
            Self::VideoIn => "video_in",
            Self::FileIn => "file_in",
            Self::DataIn => "data_in",
            Self::ImageOut => "image_out",
            Self::AudioOut => "audio_out",
            Self::VideoOut => "video_out",
            Self::FileOut => "file_out",
            Self::DataOut => "data_out",
            Self::Annotation => "annotation",
            Self::Usage => "usage",
            Self::EndReason => "end_reason",
            Self::ErrorCode => "error_code",
            Self::Instructions => "instructions",
            Self::Sampling => "sampling",
            Self::OutputFormat => "output_format",
            Self::History => "history",
            Self::User => "user",
            Self::Metadata => "metadata",
            Self::ProtocolEvent => "protocol_event",
            Self::Opaque => "opaque",
            Self::Routing => "routing",
        }
    }
}

/// The change of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It arrives in another form.
    Changed,
    /// It does not arrive.
    Lost,
}

impl Change {
    /// The value in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Lost => "lost",
        }
    }
}

/// One way in which content changes or is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The kind of the content.
    pub kind: ContentKind,
    /// The change of the content.
    pub change: Change,
    /// A short clause for operators, in the present tense, without any of the content.
    pub how: &'static str,
    /// The number of occurrences.
    pub count: u32,
}

impl fmt::Display for Loss {
    /// Such as `reasoning (this protocol has none) ×2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind.as_str(), self.how)?;
        if self.count > 1 {
            write!(f, " ×{}", self.count)?;
        }
        Ok(())
    }
}

/// The losses of one turn or one response. An empty list allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// At most this many different ones are kept.
    pub const MAX: usize = 32;

    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Records content that does not arrive.
    pub fn lost(&mut self, kind: ContentKind, how: &'static str) {
        self.note(kind, Change::Lost, how);
    }

    /// Records content that arrives in another form.
    pub fn changed(&mut self, kind: ContentKind, how: &'static str) {
        self.note(kind, Change::Changed, how);
    }

    fn note(&mut self, kind: ContentKind, change: Change, how: &'static str) {
        self.add(Loss { kind, change, how, count: 1 });
    }

    fn add(&mut self, new: Loss) {
        let is_same = |loss: &&mut Loss| loss.kind == new.kind && loss.change == new.change && loss.how == new.how;
        if let Some(known) = self.0.iter_mut().find(is_same) {
            known.count = known.count.saturating_add(new.count);
        } else if self.0.len() < Self::MAX {
            self.0.push(new);
        }
    }

    /// Adds the losses of another list.
    pub fn extend(&mut self, others: &[Loss]) {
        for loss in others {
            self.add(*loss);
        }
    }

    /// The losses, in the order in which they were first recorded.
    #[must_use]
    pub fn as_slice(&self) -> &[Loss] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_loss_is_counted_and_different_ones_are_bounded() {
        let mut losses = Losses::new();
        losses.lost(ContentKind::Usage, "not reported");
        losses.lost(ContentKind::Usage, "not reported");
        losses.changed(ContentKind::Usage, "not reported");
        assert_eq!(losses.as_slice().iter().map(|loss| loss.count).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(losses.as_slice()[0].to_string(), "usage (not reported) ×2");

        const HOW: [&str; Losses::MAX + 1] = {
            let text = "0123456789abcdefghijklmnopqrstuvwxyz";
            let mut all = [""; Losses::MAX + 1];
            let mut next = 0;
            while next < all.len() {
                all[next] = text.split_at(next).1;
                next += 1;
            }
            all
        };
        for how in HOW {
            losses.lost(ContentKind::Text, how);
        }
        assert_eq!(losses.as_slice().len(), Losses::MAX);
    }

    #[test]
    fn a_kind_has_one_name() {
        for kind in [ContentKind::Text, ContentKind::ApprovalReason, ContentKind::ProtocolEvent] {
            assert_eq!(serde_json::to_string(&kind).expect("a text"), format!("\"{}\"", kind.as_str()));
        }
    }
}
