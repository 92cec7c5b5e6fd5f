//! Random numbers of the system, for secrets.

use ring::rand::{SecureRandom as _, SystemRandom};

/// Random bytes.
///
/// # Panics
/// If the system has no random numbers.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}
