//! Shows lines in place of the previous ones. If the output is not a terminal, prints only what has changed.

use std::io::{IsTerminal, Result, Write, stdout};

/// Where lines are shown. On a terminal, this is the alternate screen, and [`Screen::leave`] leaves it.
pub struct Screen {
    is_terminal: bool,
    shown: Vec<String>,
}

impl Screen {
    /// Whether the output is a terminal, so that ages may be updated.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows these lines in place of the last ones.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn show(&mut self, lines: &[String]) -> Result<()> {
        let mut out = stdout().lock();
        if self.is_terminal {
            self.draw(&mut out, lines)?;
        } else {
            self.print_new(&mut out, lines)?;
        }
        out.flush()?;
        lines.clone_into(&mut self.shown);
        Ok(())
    }

    /// Returns to the terminal as it was, and prints the last lines there.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn leave(&mut self) -> Result<()> {
        let mut out = stdout().lock();
        if self.is_terminal && !self.shown.is_empty() {
            write!(out, "\x1b[?7h\x1b[?25h\x1b[?1049l")?;
            self.shown.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        out.flush()
    }

    fn draw(&self, out: &mut impl Write, lines: &[String]) -> Result<()> {
        if self.shown.is_empty() {
            // The alternate screen, without a cursor and without line wrapping.
            write!(out, "\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        }
        // Starts at the top, and clears what remains of longer lines.
        write!(out, "\x1b[H")?;
        lines.iter().try_for_each(|line| write!(out, "{line}\x1b[K\r\n"))?;
        write!(out, "\x1b[J")
    }

    /// Prints the lines that are new, below the title of their object.
    fn print_new(&self, out: &mut impl Write, lines: &[String]) -> Result<()> {
        let mut title = None;
        for line in lines {
            let is_title = !line.starts_with([' ', '│', '├', '└']);
            if is_title {
                title = Some(line);
            }
            if self.shown.contains(line) {
                continue;
            }
            if let Some(title) = title.take().filter(|title| *title != line) {
                writeln!(out, "{title}")?;
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

impl Default for Screen {
    /// A screen on the standard output.
    fn default() -> Self {
        Self { is_terminal: stdout().is_terminal(), shown: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_are_printed_where_nobody_watches() {
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let screen = Screen { is_terminal: false, shown: lines(&["✓ EtcdCluster a", "├── x", "└── y"]) };
        let printed = |new: &[&str]| {
            let mut out = Vec::new();
            screen.print_new(&mut out, &lines(new)).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed(&["✓ EtcdCluster a", "├── x", "└── y"]), "");
        assert_eq!(printed(&["✓ EtcdCluster a", "├── x", "└── z"]), "✓ EtcdCluster a\n└── z\n");
        assert_eq!(printed(&["… EtcdCluster a", "├── x", "└── z"]), "… EtcdCluster a\n└── z\n");
    }
}
