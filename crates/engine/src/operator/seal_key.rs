//! The secret of the store with which data that clients keep is sealed: made once, by the first gateway that uses the
//! store.

use std::sync::Arc;

use interlingua_core::seal::Sealer;

use interlingua_base::{clock, random};
use interlingua_store::{Expect, Store, StoreError};

/// The collection of the store that the secret is in.
const COLLECTION: &str = "secrets";
/// Key of the document.
const KEY: &str = "seal";

/// Reads the secret, or makes it, unless the sealer has it.
pub(crate) async fn load(store: &Arc<dyn Store>, sealer: &Sealer) -> Result<(), StoreError> {
    while !sealer.has_key() {
        match store.get(COLLECTION, KEY).await? {
            Some(document) => match <[u8; 32]>::try_from(&document.value[..]) {
                Ok(key) => sealer.set_key(key),
                Err(_) => {
                    // Replace an unusable secret: data sealed with it cannot be opened anyway.
                    let put = store.put(COLLECTION, KEY, new_key(), Expect::Version(document.version), clock::now());
                    let _ = put.await?;
                }
            },
            // If another gateway is faster, its secret is read in the next round.
            None => drop(store.put(COLLECTION, KEY, new_key(), Expect::Absent, clock::now()).await?),
        }
    }
    Ok(())
}

fn new_key() -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(&random::bytes::<32>())
}
