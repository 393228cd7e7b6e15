//! The code blocks of the pages, and the commands in their text: `README.md`, `CONTRIBUTING.md` and all of `docs`.

mod text;

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use text::Paragraph;

/// Languages of blocks without commands.
const LANGUAGES: [&str; 5] = ["yaml", "json", "rust", "mermaid", "toml"];
const FENCE: &str = "```";

/// A block without a language: commands, or text that is only to be read. Or a command in the text of a page.
pub struct Block {
    /// Path of its page.
    pub page: String,
    /// Whether it is a command in the text.
    pub in_text: bool,
    /// Its lines, without their common indent.
    lines: Vec<String>,
}

impl Block {
    /// Its first line.
    #[must_use]
    pub fn first(&self) -> &str {
        self.lines.first().map_or("", String::as_str)
    }

    /// Its commands, if it has any. If some lines have a prompt, the others are output.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        let has_prompts = self.lines.iter().any(|line| line.starts_with("$ "));
        let mut lines = self.lines.iter();
        let mut commands = Vec::new();
        while let Some(line) = lines.next() {
            let line = match line.strip_prefix("$ ") {
                Some(typed) => typed,
                None if has_prompts => continue,
                None => line.as_str(),
            };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut command = line.to_owned();
            while !is_whole(&command)
                && let Some(next) = lines.next()
            {
                command.push('\n');
                command.push_str(next);
            }
            commands.push(command);
        }
        commands
    }
}

/// Whether a shell would run the command without waiting for another line.
fn is_whole(command: &str) -> bool {
    if command.ends_with(['\\', '|']) || command.matches('\'').count() % 2 == 1 {
        return false;
    }
    let mark = command.split_once("<<").and_then(|(_, rest)| rest.split_whitespace().next());
    mark.is_none_or(|mark| command.lines().skip(1).any(|line| line == mark))
}

/// The blocks of all pages, in their order.
///
/// # Errors
/// When a page cannot be read, or has a block that is not between fences.
pub fn blocks() -> Result<Vec<Block>> {
    Ok(blocks_and_text()?.into_iter().filter(|block| !block.in_text).collect())
}

/// The blocks of all pages and the commands in their text, in their order.
///
/// # Errors
/// As [`blocks`].
pub fn blocks_and_text() -> Result<Vec<Block>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    pages.extend(pages_in(&root.join("docs"))?);
    let mut found = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
        let name = page.strip_prefix(&root)?.display().to_string();
        found.extend(of_page(&name, &text)?);
    }
    Ok(found)
}

fn pages_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            pages.extend(pages_in(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

fn of_page(page: &str, text: &str) -> Result<Vec<Block>> {
    let block = |in_text: bool, lines: Vec<String>| Block { page: page.to_owned(), in_text, lines };
    let in_text = |commands: Vec<String>| commands.into_iter().map(|command| block(true, vec![command]));
    let mut blocks = Vec::new();
    // The language of the block that a line is in, and its lines so far.
    let mut open: Option<(&str, Vec<&str>)> = None;
    let mut paragraph = Paragraph::default();
    let mut after_nothing = true;
    for line in text.lines() {
        open = match (open, line.trim_start().strip_prefix(FENCE)) {
            (None, Some(language)) => {
                blocks.extend(in_text(paragraph.end()));
                Some((language.trim(), Vec::new()))
            }
            (Some((language, lines)), Some(_)) => {
                if !LANGUAGES.contains(&language) {
                    blocks.push(block(false, without_indent(&lines)));
                }
                None
            }
            (Some((language, mut lines)), None) => {
                lines.push(line);
                Some((language, lines))
            }
            (None, None) => {
                let indented = line.starts_with("    ") && after_nothing;
                ensure!(!indented, "{page}: a block needs fences, or nobody looks at what is in it: {line}");
                blocks.extend(in_text(paragraph.line(line)));
                None
            }
        };
        after_nothing = line.trim().is_empty();
    }
    ensure!(open.is_none(), "{page}: its last block does not end");
    blocks.extend(in_text(paragraph.end()));
    Ok(blocks)
}

fn without_indent(lines: &[&str]) -> Vec<String> {
    let indent = lines.first().map_or(0, |line| line.len() - line.trim_start().len());
    let cut = |line: &&str| match line.split_at_checked(indent) {
        Some((before, rest)) if before.trim().is_empty() => rest.to_owned(),
        _ => line.trim_start().to_owned(),
    };
    lines.iter().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_commands_in_the_text_are_found_in_their_order() {
        let beginning = "Run `make one`:\n\n```\nmake two\n```\n\nor `make\nthree`, ";
        let page = format!("{beginning}or look at\n\n```yaml\na: b\n```\n\n`make four`");
        let found = of_page("page", &page).unwrap();
        let commands: Vec<String> = found.iter().flat_map(Block::commands).collect();
        assert_eq!(commands, ["make one", "make two", "make three", "make four"]);
        assert_eq!(found.iter().filter(|block| !block.in_text).count(), 1);
        assert!(of_page("page", "```\nmake one\n").is_err());
    }
}
