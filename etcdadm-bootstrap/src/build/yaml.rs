//! The small part of YAML that bootstrap data needs, written so that no text can end up outside its own scalar.
//!
//! Every string is a double-quoted scalar of printable ASCII: it means the same to every YAML parser, in YAML 1.1 and
//! 1.2, and a line never begins with a user's text.

use super::template::Segment;
use base64::Engine as _;
use std::fmt::Write as _;

/// Width of Base64 lines. Short enough for parsers that read line by line into a fixed buffer.
const BASE64_WIDTH: usize = 76;

/// A YAML document that is being written.
pub(super) struct Yaml {
    text: String,
    templated: bool,
}

impl Yaml {
    /// A document that begins with `header`. `templated`: cloud-init treats the document as a Jinja template before it
    /// reads it as YAML, so text must not look like a template.
    pub(super) fn new(header: &str, templated: bool) -> Self {
        Self { text: header.to_owned(), templated }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// A key whose value follows on the next lines. It is alone on its line, as the docker provider's parser requires.
    pub(super) fn section(&mut self, indent: usize, key: &str) {
        _ = writeln!(self.text, "{:indent$}{key}:", "");
    }

    /// `key: "value"`, as the first key of a list item if `dash`.
    pub(super) fn string(&mut self, indent: usize, dash: bool, key: &str, value: &str) {
        self.key(indent, dash, key);
        self.scalar(&[Segment::Text(value.to_owned())]);
        self.text.push('\n');
    }

    /// `key: true` or `key: false`.
    pub(super) fn boolean(&mut self, indent: usize, key: &str, value: bool) {
        self.key(indent, false, key);
        _ = writeln!(self.text, "{value}");
    }

    /// `key:` with `bytes` in Base64, a block over several lines.
    pub(super) fn base64(&mut self, indent: usize, key: &str, bytes: &[u8]) {
        self.key(indent, false, key);
        let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
        if encoded.is_empty() {
            self.text.push_str("\"\"\n");
            return;
        }
        self.text.push_str("|-\n");
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(BASE64_WIDTH));
            _ = writeln!(self.text, "{:indent$}  {line}", "");
            rest = after;
        }
    }

    /// A list item that is a string.
    pub(super) fn item(&mut self, indent: usize, value: &[Segment]) {
        _ = write!(self.text, "{:indent$}- ", "");
        self.scalar(value);
        self.text.push('\n');
    }

    fn key(&mut self, indent: usize, dash: bool, key: &str) {
        _ = write!(self.text, "{:indent$}{}{key}: ", "", if dash { "- " } else { "" });
    }

    fn scalar(&mut self, segments: &[Segment]) {
        self.text.push('"');
        for segment in segments {
            match segment {
                Segment::Text(text) => self.escaped(text),
                Segment::Expression(expression) => self.text.push_str(expression),
            }
        }
        self.text.push('"');
    }

    fn escaped(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            match char {
                // The start of a Jinja tag, or text that would be one together with the expression after it.
                '{' if self.templated && chars.peek().is_none_or(|next| "{%#".contains(*next)) => {
                    self.text.push_str("\\x7b");
                }
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\t' => self.text.push_str("\\t"),
                ' '..='~' => self.text.push(char),
                _ => {
                    _ = match u32::from(char) {
                        code @ ..=0xff => write!(self.text, "\\x{code:02x}"),
                        code @ ..=0xffff => write!(self.text, "\\u{code:04x}"),
                        code => write!(self.text, "\\U{code:08x}"),
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(text: &str, templated: bool) -> (String, String) {
        let mut yaml = Yaml::new("", templated);
        yaml.item(0, &[Segment::Text(text.to_owned())]);
        let written = yaml.finish();
        let read: Vec<String> = serde_yaml::from_str(&written).unwrap();
        (written, read.into_iter().next().unwrap())
    }

    proptest! {
        #[test]
        fn every_string_is_read_back(text in any::<String>(), templated in any::<bool>()) {
            let (written, read) = round_trip(&text, templated);
            prop_assert_eq!(&read, &text);
            prop_assert!(written.is_ascii() && written.lines().count() == 1, "{}", written);
        }

        #[test]
        fn no_text_looks_like_a_template(text in "[{%#}\"\\\\a ]{0,24}") {
            let (written, read) = round_trip(&text, true);
            prop_assert_eq!(read, text);
            prop_assert!(!["{{", "{%", "{#"].iter().any(|tag| written.contains(tag)), "{}", written);
        }

        #[test]
        fn bytes_are_read_back(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut yaml = Yaml::new("", true);
            yaml.base64(2, "content", &bytes);
            let read: std::collections::BTreeMap<String, String> = serde_yaml::from_str(&yaml.finish()).unwrap();
            let joined = read["content"].replace('\n', "");
            prop_assert_eq!(base64::engine::general_purpose::STANDARD.decode(joined).unwrap(), bytes);
        }
    }

    #[test]
    fn a_brace_before_an_expression_does_not_join_it() {
        let mut yaml = Yaml::new("", true);
        yaml.item(0, &[Segment::Text("{".to_owned()), Segment::Expression("{{ ds.a }}".to_owned())]);
        assert_eq!(yaml.finish(), "- \"\\x7b{{ ds.a }}\"\n");
    }
}
