//! Lenient base64: both alphabets and missing padding are accepted, the standard form with padding is written
//! (docs/protocols/a2a.md#data-model).

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD, URL_SAFE_NO_PAD};

/// Like the standard form, but the unused bits of the last digit may be set.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Converts any form to the standard form. `None` if it is not base64. Does not decode: files are large, and the most
/// common form is passed on as it is.
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

/// True if the text of a link field can only be base64: the standard form, padded, without unused bits, and too long
/// for a path. Short base64 cannot be told apart from a path of letters, digits and slashes.
pub(crate) fn is_certainly_base64(text: &str) -> bool {
    text.len() >= MAX_PATH_LEN
        && text.len().is_multiple_of(4)
        && matches!(to_standard(text), Some(Cow::Borrowed(_)))
        // Only the last four digits can have unused bits.
        && text.get(text.len() - 4..).is_some_and(|end| STANDARD.decode(end).is_ok())
}

const fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Encodes bytes in the URL alphabet without padding, for signatures and cursors.
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes bytes in either alphabet, with or without padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    LENIENT.decode(&*to_standard(text)?).ok()
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
