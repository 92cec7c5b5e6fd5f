//! An error with its causes in one line.

/// The error and its causes. Many errors of libraries contain the text of their cause: it is not repeated, nor is what
/// led to it.
pub(super) fn error_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if line.contains(&cause) {
            break;
        }
        line = format!("{line}: {cause}");
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_cause_whose_text_is_there_is_not_repeated() {
        let cause = || std::io::Error::other("file is not a database");
        let repeated = anyhow::Error::new(cause()).context("cannot open 'bad.db': file is not a database");
        assert_eq!(error_line(&repeated), "cannot open 'bad.db': file is not a database");
        let apart = Err::<(), _>(cause()).context("cannot open 'bad.db'").expect_err("an error");
        assert_eq!(error_line(&apart), "cannot open 'bad.db': file is not a database");
    }
}
