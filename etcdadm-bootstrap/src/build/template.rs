//! Instance data in commands: `{{ ds.meta_data.local_hostname }}`, as users of cloud-init write it.
//!
//! cloud-init treats the whole document as a template, so this module decides what may be one: a path into `ds` or
//! `v1`, followed by filters of a short list. Everything else that looks like a template stays text.

/// A part of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// Text that must arrive as it is.
    Text(String),
    /// An expression for cloud-init, with its braces. Printable ASCII without `"` and `\`, so that it can be part of a
    /// double-quoted YAML scalar.
    Expression(String),
}

/// Filters that only turn text into text.
const FILTERS: [&str; 11] =
    ["default", "first", "int", "join", "last", "length", "lower", "replace", "string", "trim", "upper"];

/// Splits a command into text and expressions.
pub(super) fn segments(command: &str) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut text = String::new();
    let mut rest = command;
    while let Some(next) = rest.chars().next() {
        if let Some((expression, after)) = expression(rest) {
            if !text.is_empty() {
                segments.push(Segment::Text(std::mem::take(&mut text)));
            }
            segments.push(Segment::Expression(expression));
            rest = after;
        } else {
            text.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    if !text.is_empty() {
        segments.push(Segment::Text(text));
    }
    segments
}

/// The expression at the start of `input`, and what follows it.
fn expression(input: &str) -> Option<(String, &str)> {
    let mut scan = Scan { rest: input.strip_prefix("{{")?, out: "{{".to_owned() };
    scan.space();
    if !["ds", "v1"].contains(&scan.name()?) {
        return None;
    }
    let mut steps = 0;
    while scan.step()? {
        steps += 1;
    }
    if steps == 0 {
        return None;
    }
    scan.space();
    while scan.token('|') {
        scan.space();
        if !FILTERS.contains(&scan.name()?) {
            return None;
        }
        if scan.token('(') {
            scan.arguments()?;
        }
        scan.space();
    }
    let after = scan.rest.strip_prefix("}}")?;
    Some((scan.out + "}}", after))
}

/// Reads from `rest` and copies what it has read to `out`, with strings in single quotes.
struct Scan<'a> {
    rest: &'a str,
    out: String,
}

impl<'a> Scan<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.out.push_str(taken);
        taken
    }

    fn space(&mut self) {
        let length = self.rest.len() - self.rest.trim_start_matches(' ').len();
        self.take(length);
    }

    fn token(&mut self, token: char) -> bool {
        let found = self.rest.starts_with(token);
        if found {
            self.take(1);
        }
        found
    }

    fn name(&mut self) -> Option<&'a str> {
        let length =
            self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        let starts_well = self.rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts_well.then(|| self.take(length))
    }

    /// `.name` or `[literal]`. False: there is no further step.
    fn step(&mut self) -> Option<bool> {
        if self.token('.') {
            self.name()?;
            Some(true)
        } else if self.token('[') {
            self.literal()?;
            self.token(']').then_some(true)
        } else {
            Some(false)
        }
    }

    /// Literals up to the closing parenthesis.
    fn arguments(&mut self) -> Option<()> {
        loop {
            self.space();
            self.literal()?;
            self.space();
            if self.token(')') {
                return Some(());
            }
            if !self.token(',') {
                return None;
            }
        }
    }

    /// A number, or a string in either kind of quotes that contains neither quotes nor anything that YAML escapes.
    fn literal(&mut self) -> Option<()> {
        let quote = self.rest.chars().next()?;
        if quote == '\'' || quote == '"' {
            let (inner, rest) = self.rest[1..].split_once(quote)?;
            let harmless = |c: char| (c.is_ascii_graphic() || c == ' ') && !"'\"\\{}".contains(c);
            if !inner.chars().all(harmless) {
                return None;
            }
            self.out.push('\'');
            self.out.push_str(inner);
            self.out.push('\'');
            self.rest = rest;
            return Some(());
        }
        let length = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        (length > 0 && length < 10).then(|| {
            self.take(length);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("{{ ds.meta_data.local_hostname }}", "{{ ds.meta_data.local_hostname }}")]
    #[case("{{v1.region}}", "{{v1.region}}")]
    #[case(r#"{{ ds["meta_data"]['x'][0] }}"#, "{{ ds['meta_data']['x'][0] }}")]
    #[case(r#"{{ v1.name | lower | replace("a", 'b') }}"#, "{{ v1.name | lower | replace('a', 'b') }}")]
    fn instance_data_stays_an_expression(#[case] written: &str, #[case] kept: &str) {
        assert_eq!(
            segments(&format!("echo {written} }}")),
            [Segment::Text("echo ".to_owned()), Segment::Expression(kept.to_owned()), Segment::Text(" }".to_owned())]
        );
    }

    #[test]
    fn text_around_an_expression_is_kept() {
        assert_eq!(
            segments("{{ x }}{{ ds.a }}}{{ds.b}}"),
            [
                Segment::Text("{{ x }}".to_owned()),
                Segment::Expression("{{ ds.a }}".to_owned()),
                Segment::Text("}".to_owned()),
                Segment::Expression("{{ds.b}}".to_owned())
            ]
        );
    }

    #[rstest]
    #[case("{{ .State }}")]
    #[case("{{ ds }}")]
    #[case("{{ ds. }}")]
    #[case("{{ ds.x")]
    #[case("{{ ds.x }")]
    #[case("{{ ds.x | shell }}")]
    #[case("{{ ds.x + ds.y }}")]
    #[case("{{ ds.x() }}")]
    #[case("{{ ds['a\"b'] }}")]
    #[case("{{ ds['}}'] }}")]
    #[case("{{ v1.x\n}}")]
    #[case("{{ dsx.y }}")]
    #[case("{{ self.__init__ }}")]
    #[case("{% for x in ds.y %}")]
    #[case("{# ds.x #}")]
    #[case("{{{ ds.x }")]
    fn everything_else_is_text(#[case] command: &str) {
        assert_eq!(segments(command), [Segment::Text(command.to_owned())]);
    }
}
