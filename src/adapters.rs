//! The one list of protocols compiled in.

use interlingua_native::{Native, NativeUpstream};
use interlingua_responses::Responses;

use crate::Gateway;

/// Everything that comes with the gateway.
pub(crate) fn builtin() -> Gateway {
    Gateway::empty().serve::<Native>().serve::<Responses>().ask::<NativeUpstream>()
}
