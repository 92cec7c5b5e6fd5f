//! Writes an error and its causes in one line.

/// The error and its causes. Many errors of libraries end with the text of their cause, or their cause ends with theirs,
/// after a code: neither is repeated.
pub(super) fn error_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    let mut above = line.clone();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if cause.is_empty() {
            continue;
        }
        if !line.ends_with(&cause) && !cause.ends_with(&above) {
            line = format!("{line}: {cause}");
        }
        above = cause;
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

    #[test]
    fn a_cause_is_written_although_its_text_is_part_of_another_word_or_the_text_above_it_is_repeated() {
        let error = anyhow::anyhow!("io").context("no connection to studio.example");
        assert_eq!(error_line(&error), "no connection to studio.example: io");
        let error = anyhow::anyhow!("disk full").context("cannot write").context("stopped: cannot write");
        assert_eq!(error_line(&error), "stopped: cannot write: disk full");
    }

    #[test]
    fn a_cause_that_repeats_the_text_above_it_after_a_code_is_left_out() {
        let error = anyhow::anyhow!("disk full").context("code 26: not a database").context("not a database");
        assert_eq!(error_line(&error.context("cannot open")), "cannot open: not a database: disk full");
    }
}
