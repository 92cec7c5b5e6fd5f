//! Lenient base64: both alphabets and missing padding are accepted, the standard form with padding is written
//! (section 5).

use std::borrow::Cow;

/// Converts any form to the standard form. `None` if it is not base64.
pub(crate) fn to_standard(text: &str) -> Option<Cow<'_, str>> {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let remainder = body.len() % 4;
    if remainder == 1 || padding > 2 || !body.bytes().all(is_digit) {
        return None;
    }

    let expected_padding = (4 - remainder) % 4;
    // Padding is either absent or correct.
    if padding != 0 && padding != expected_padding {
        return None;
    }
    if padding == expected_padding && !body.bytes().any(|byte| matches!(byte, b'-' | b'_')) {
        return Some(Cow::Borrowed(text));
    }

    let mut standard: String = body
        .chars()
        .map(|character| match character {
            '-' => '+',
            '_' => '/',
            character => character,
        })
        .collect();

    standard.extend(std::iter::repeat_n('=', expected_padding));

    Some(Cow::Owned(standard))
}

/// Links of this length or more are not plain paths.
const MAX_PATH_LEN: usize = 512;

/// True if the text of a link field can only be base64: the standard form, padded, without stray bits, and too long for
/// a path. Short base64 cannot be told apart from a path of letters, digits and slashes.
pub(crate) fn is_certainly_base64(text: &str) -> bool {
    let stray_bits = |digits: &str| match text.len() - digits.len() {
        // The unused bits of the last digit before the padding must be zero.
        1 => !digits.ends_with(|digit: char| "AEIMQUYcgkosw048".contains(digit)),
        2 => !digits.ends_with(['A', 'Q', 'g', 'w']),
        _ => false,
    };
    text.len() >= MAX_PATH_LEN
        && text.len().is_multiple_of(4)
        && matches!(to_standard(text), Some(Cow::Borrowed(_)))
        && !stray_bits(text.trim_end_matches('='))
}

const fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Encodes bytes in the URL alphabet without padding, for signatures and cursors.
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..=chunk.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * index) & 63) as usize]));
        }
    }
    text
}

/// Decodes bytes in either alphabet, with or without padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = to_standard(text)?;
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
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
        decoded.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_converted_to_the_standard_one() {
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
            assert_eq!(to_standard(form).as_deref(), written, "{form}");
        }
    }

    #[test]
    fn bytes_round_trip() {
        for length in 0..20_u8 {
            let input: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(77).wrapping_add(201)).collect();
            assert_eq!(decode(&encode_url(&input)).as_deref(), Some(input.as_slice()));
        }
        assert_eq!(encode_url(b"\xfb\xff\xfe"), "-__-");
    }
}
