//! Draws lines over those drawn before. Without a terminal, prints what has changed.

use std::io::{IsTerminal, Write, stdout};

/// The part of the terminal that shows the tree.
#[derive(Default)]
pub struct Screen {
    drawn: Vec<String>,
}

impl Screen {
    /// Whether the output goes to a terminal.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        stdout().is_terminal()
    }

    /// Shows these lines in place of the last ones.
    pub fn show(&mut self, lines: &[String]) {
        let mut out = stdout().lock();
        // If the terminal is gone, the demo goes on without it.
        let _ = if out.is_terminal() { self.redraw(&mut out, lines) } else { self.print_new(&mut out, lines) };
        let _ = out.flush();
        lines.clone_into(&mut self.drawn);
    }

    fn redraw(&self, out: &mut impl Write, lines: &[String]) -> std::io::Result<()> {
        if !self.drawn.is_empty() {
            // Up to the first line, and clear from there on.
            write!(out, "\x1b[{}F\x1b[J", self.drawn.len())?;
        }
        // Line wrapping is off: a wrapped line would count as two when the tree is drawn over.
        write!(out, "\x1b[?7l")?;
        for line in lines {
            writeln!(out, "{line}")?;
        }
        write!(out, "\x1b[?7h")
    }

    /// Leaves out the first line, which has the time and always changes.
    fn print_new(&self, out: &mut impl Write, lines: &[String]) -> std::io::Result<()> {
        let new: Vec<&String> = lines.iter().skip(1).filter(|line| !self.drawn.contains(line)).collect();
        if let (Some(head), false) = (lines.first(), new.is_empty()) {
            writeln!(out, "{head}")?;
        }
        new.into_iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_are_printed_where_nobody_watches() {
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let screen = Screen { drawn: lines(&["1 s", "a", "b"]) };
        let mut out = Vec::new();
        screen.print_new(&mut out, &lines(&["2 s", "a", "b"])).unwrap();
        assert!(out.is_empty(), "time alone is not news");
        screen.print_new(&mut out, &lines(&["3 s", "a", "c"])).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "3 s\nc\n");
    }
}
