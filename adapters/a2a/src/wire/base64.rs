//! Base64 as it comes and as it is written: both alphabets and missing padding are read, the standard form with padding
//! is written (section 5). The bytes themselves are never looked at.

use std::borrow::Cow;

/// The standard form of any form. None if it is no base64.
pub(crate) fn standard(text: &str) -> Option<Cow<'_, str>> {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let rest = body.len() % 4;
    if rest == 1 || padding > 2 || !body.bytes().all(is_digit) {
        return None;
    }
    let wanted = (4 - rest) % 4;
    // Padding is left out, or right.
    if padding != 0 && padding != wanted {
        return None;
    }
    if padding == wanted && !body.bytes().any(|byte| matches!(byte, b'-' | b'_')) {
        return Some(Cow::Borrowed(text));
    }
    let mut standard: String = body
        .chars()
        .map(|letter| match letter {
            '-' => '+',
            '_' => '/',
            letter => letter,
        })
        .collect();
    standard.extend(std::iter::repeat_n('=', wanted));
    Some(Cow::Owned(standard))
}

/// Longer than a path that anybody writes.
const LONGER_THAN_PATHS: usize = 512;

/// True for what stands where a link belongs and can only be base64: the standard form, padded and without stray bits, of
/// a length no path has. A path is letters, digits and slashes too.
pub(crate) fn is_no_path(text: &str) -> bool {
    let stray_bits = |digits: &str| match text.len() - digits.len() {
        // The last digit before the padding has bits to spare: they are zero.
        1 => !digits.ends_with(|digit: char| "AEIMQUYcgkosw048".contains(digit)),
        2 => !digits.ends_with(['A', 'Q', 'g', 'w']),
        _ => false,
    };
    text.len() >= LONGER_THAN_PATHS
        && text.len().is_multiple_of(4)
        && matches!(standard(text), Some(Cow::Borrowed(_)))
        && !stray_bits(text.trim_end_matches('='))
}

const fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Bytes in the URL alphabet without padding, as signatures and cursors have them.
pub(crate) fn url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

/// Reads bytes in either alphabet, with or without padding.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    let text = standard(text)?;
    let mut read = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().fold(0_u32, |bits, digit| {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                _ => 63,
            };
            bits << 6 | u32::from(value)
        }) << (6 * (4 - chunk.len()));
        read.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_the_standard_one_written() {
        for (form, written) in [
            ("", Some("")),
            ("AQID", Some("AQID")),
            ("AQ==", Some("AQ==")),
            ("AQ", Some("AQ==")),
            ("_-8", Some("/+8=")),
            ("+/8=", Some("+/8=")),
            ("A", None),
            ("AQ=", None),
            ("AQI==", None),
            ("A Q", None),
            ("Ä", None),
        ] {
            assert_eq!(standard(form).as_deref(), written, "{form}");
        }
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        for length in 0..20_u8 {
            let given: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(77).wrapping_add(201)).collect();
            assert_eq!(bytes(&url(&given)).as_deref(), Some(given.as_slice()));
        }
        assert_eq!(url(b"\xfb\xff\xfe"), "-__-");
    }
}
