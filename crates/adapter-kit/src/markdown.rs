//! Links to media in Markdown, for client protocols whose messages are text.
//!
//! Not here: whether a protocol has a place of its own for some of it.

use interlingua_core::model::Body;

/// A link to a medium by its `http` or `https` URL. `None`: it has none, or is no medium. Inline data is useless in a
/// text.
///
/// Neither the URL nor the name of a file can break out of the link.
#[must_use]
pub fn link(body: &Body) -> Option<String> {
    let (label, url, mark) = match body {
        Body::Image(url) => ("image", url.as_deref(), "!"),
        Body::Video(url) => ("video", url.as_deref(), ""),
        Body::Audio { data, .. } => ("audio", data.as_deref(), ""),
        Body::File(file) => (file.name.as_deref().unwrap_or("file"), file.url.as_deref(), ""),
        _ => return None,
    };
    let is_link = |url: &&str| url.starts_with("https://") || url.starts_with("http://");
    let url = url.filter(is_link)?;
    Some(format!("{mark}[{}]({})", remove_characters(label, &['[', ']', '\\']), escape_url(url)))
}

fn remove_characters(label: &str, characters: &[char]) -> String {
    label.chars().filter(|character| !character.is_control() && !characters.contains(character)).collect()
}

/// Escapes a URL so that it cannot end the Markdown link that contains it.
fn escape_url(url: &str) -> String {
    let mut escaped = String::with_capacity(url.len());
    for character in url.chars() {
        match character {
            '(' => escaped.push_str("%28"),
            ')' => escaped.push_str("%29"),
            '<' => escaped.push_str("%3C"),
            '>' => escaped.push_str("%3E"),
            ' ' => escaped.push_str("%20"),
            character if character.is_control() => {}
            character => escaped.push(character),
        }
    }

    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlingua_core::model::File;

    #[test]
    fn neither_the_url_nor_the_name_breaks_out_of_the_link() {
        let file = |url: &str, name: &str| {
            link(&Body::File(File { url: Some(url.to_owned()), name: Some(name.to_owned()), ..File::default() }))
        };
        let written = file("https://a/b c(1).pdf", "the [final]\n file");
        assert_eq!(written.as_deref(), Some("[the final file](https://a/b%20c%281%29.pdf)"));
        assert_eq!(file("javascript:alert(1)", "x"), None);
        assert_eq!(link(&Body::Image(Some("data:image/png;base64,AAAA".to_owned()))), None);
    }
}
