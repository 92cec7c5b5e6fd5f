//! Support of a protocol in the operator's console. Not here: the sample request ([`crate::sample`]), and the console
//! (the crate `interlingua-admin`).

use crate::id::RunId;
use crate::sample::Sample;

/// The presentation of a protocol to operators. By default the console does not show the protocol.
#[derive(Default)]
pub struct ConsoleSupport {
    /// Example shell commands, with `{url}` for the URL of the mount point.
    pub curl: Vec<String>,
    /// The way in which a client is informed of a decision that someone else made.
    pub decision_notice: DecisionNotice,
    /// Formats the id of a run as the protocol does. `None`: the protocol uses the id as it is, or clients choose ids.
    pub run_id: Option<fn(RunId) -> String>,
    /// Makes a request that runs an agent, for the playground and for the protocol's view of a run. `None`: the
    /// protocol has neither.
    pub sample: Option<Sample>,
    /// Programs that send the sample request with an official client library.
    pub snippets: ClientSnippets,
}

/// Templates of programs that send a sample request. `None`: the console shows one that uses a general HTTP library.
///
/// A template has these placeholders, which are replaced with literals of the language:
///
/// | placeholder | value |
/// | --- | --- |
/// | `$URL` | the URL of the mount point |
/// | `$KEY` | an expression for the key or token; `"none"` if the route needs none |
/// | `$TEXT` | the user's text |
/// | `$BODY` | the body of the request |
/// | `$ARGUMENTS` | the fields of the body as keyword arguments, one per line |
///
/// A line that begins with `?key ` is kept only if the route accepts keys or tokens, one with `?no-key ` only if it
/// accepts neither, one with `?jwt ` only if it accepts tokens but no keys, and one with `?no-jwt ` in all other cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientSnippets {
    /// A program in Python.
    pub python: Option<&'static str>,
    /// A program in TypeScript.
    pub typescript: Option<&'static str>,
}

/// The way in which a client is informed of a decision about its pending item that someone else made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecisionNotice {
    /// Its stream continues, or it receives a push notification.
    Notified,
    /// It can follow the session, whose next run it sees.
    Follows,
    /// It polls the state.
    Polls,
    /// With the answer to its next message.
    #[default]
    NextMessage,
}
