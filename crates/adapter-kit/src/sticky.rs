//! Tools that stay declared for a whole session: clients whose protocols have sessions declare them once, and servers
//! without a memory need them in every request.
//!
//! Not here: the storage of the tools (a connector's session state), and their form in any protocol.

use serde::{Deserialize, Serialize};

use interlingua_core::json::Json;
use interlingua_core::model::AgentRequest;

/// The tools of the latest request of a session that named some. Part of a connector's session state.
///
/// ```
/// use interlingua_core::Json;
/// use interlingua_core::model::AgentRequest;
/// use interlingua_adapter_kit::sticky::StickyTools;
///
/// let naming = |tools: &[&str]| AgentRequest {
///     tools: Some(tools.iter().map(|name| Json::from_serialize(name)).collect()),
///     ..AgentRequest::default()
/// };
/// let kept = StickyTools::default().after(&naming(&["a"]));
///
/// assert_eq!(kept.in_force(&AgentRequest::default()).len(), 1);
/// assert_eq!(kept.in_force(&naming(&[])).len(), 0, "an empty list takes them back");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StickyTools(Vec<Json>);

impl StickyTools {
    /// The tools that a request is sent with: its own if it names some, even none; else those of the session.
    #[must_use]
    pub fn in_force<'a>(&'a self, request: &'a AgentRequest) -> &'a [Json] {
        request.tools.as_deref().unwrap_or(&self.0)
    }

    /// The values that the turns after this request keep.
    #[must_use]
    pub fn after(&self, request: &AgentRequest) -> Self {
        Self(self.in_force(request).to_vec())
    }

    /// True if there is nothing to keep.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
