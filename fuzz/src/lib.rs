//! Shared by the fuzz targets: interprets the input as edits of a valid seed, so that the fuzzer does not have to
//! discover JSON or TOML.

/// The first byte selects a seed, which is edited by the following bytes. Without such a seed they are returned
/// unchanged. `None` if the input is empty.
///
/// An edit is `position (two bytes), removed bytes (one), inserted bytes (one), the inserted bytes`. Positions wrap
/// around.
pub fn edited(seeds: &[&[u8]], input: &[u8]) -> Option<Vec<u8>> {
    let [which, edits @ ..] = input else { return None };
    let Some(seed) = usize::from(*which).checked_sub(1).and_then(|which| seeds.get(which)) else {
        return Some(edits.to_vec());
    };
    let mut text = seed.to_vec();
    let mut rest = edits;

    while let [high, low, removed, new, tail @ ..] = rest {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (text.len() + 1);
        let to = (at + usize::from(*removed)).min(text.len());
        let new = usize::from(*new).min(tail.len());
        let (new, tail) = tail.split_at(new);
        text.splice(at..to, new.iter().copied());
        rest = tail;
    }
    Some(text)
}
