//! Words of a POSIX shell.

/// `text` as one word: the shell passes on exactly these bytes, whatever they are. (No word can contain a NUL; the
/// callers refuse it before.)
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:,./-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStringExt;
    use std::process::Command;

    /// What the real shell makes of the words.
    fn through_sh(words: &[String]) -> Vec<String> {
        let script = format!("printf '%s\\0' {}", words.join(" "));
        let out = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        assert!(out.status.success(), "{script}");
        let text = std::ffi::OsString::from_vec(out.stdout).into_string().unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn only_what_needs_it_is_quoted() {
        assert_eq!(word("--data-dir=/var/lib/etcd"), "--data-dir=/var/lib/etcd");
        assert_eq!(word("https://[fd00::1]:2379"), "'https://[fd00::1]:2379'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word(""), "''");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_shell_reads_back_what_was_written(texts in prop::collection::vec("[^\0]{0,24}", 1..8)) {
            let words: Vec<String> = texts.iter().map(|text| word(text)).collect();
            prop_assert_eq!(through_sh(&words), texts);
        }

        #[test]
        fn nor_does_anything_with_a_meaning_to_the_shell_escape(texts in prop::collection::vec("[ \n'\"\\\\$`!*?~#&|;<>(){}a-]{0,16}", 1..8)) {
            let words: Vec<String> = texts.iter().map(|text| word(text)).collect();
            prop_assert_eq!(through_sh(&words), texts);
        }
    }
}
