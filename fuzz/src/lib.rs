//! What the fuzz targets share: turning a fuzzer's bytes into edits of something meaningful, so that it need not find
//! JSON or TOML by itself.

/// The first byte chooses: one of the seeds, edited by what follows, or what follows as it is.
///
/// Edits are a row of `place (two bytes), how many bytes go (one), how many come (one), those bytes`; places wrap
/// around.
pub fn edited(seeds: &[&[u8]], input: &[u8]) -> Option<Vec<u8>> {
    let [which, edits @ ..] = input else { return None };
    let Some(seed) = usize::from(*which).checked_sub(1).and_then(|which| seeds.get(which)) else {
        return Some(edits.to_vec());
    };
    let mut text = seed.to_vec();
    let mut rest = edits;
    while let [high, low, gone, new, tail @ ..] = rest {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (text.len() + 1);
        let to = (at + usize::from(*gone)).min(text.len());
        let new = usize::from(*new).min(tail.len());
        let (new, tail) = tail.split_at(new);
        text.splice(at..to, new.iter().copied());
        rest = tail;
    }
    Some(text)
}
