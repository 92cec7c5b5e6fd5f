//! The reasons why an exchange does not serve a request.

use interlingua_core::{Fault, FaultKind};

use super::shared::SharedState;
use crate::envelope::RpcError;

/// The reason why a request is not served.
pub(super) enum Refusal {
    /// An error of the protocol.
    Rpc(RpcError),
    /// A fault of the gateway.
    Fault(Fault),
}

impl Refusal {
    /// The fault that ends the exchange. The error is written by `challenge::fail`.
    pub(super) fn into_fault(self, shared: &mut SharedState) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Rpc(error) => {
                let kind = if error.status == 404 { FaultKind::NotFound } else { FaultKind::Invalid };
                let fault = Fault::new(kind, error.message.clone());
                shared.refusal = Some(error);
                fault
            }
        }
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
