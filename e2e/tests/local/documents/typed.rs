//! The commands of the pages, with what the table says about each.

use super::table::{COMMANDS, FORMS, Fate, PICTURES, Row};
use anyhow::{Result, ensure};
use e2e::pages::{Block, blocks_and_text};

/// A command, and its page.
pub(super) struct Typed {
    pub(super) page: String,
    pub(super) command: String,
    pub(super) fate: Fate,
}

/// Every command of every page, in their order.
pub(super) fn typed() -> Result<Vec<Typed>> {
    let mut typed = Vec::new();
    let mut known = vec![false; COMMANDS.len()];
    let (mut forms, mut pictures) = (vec![false; FORMS.len()], vec![false; PICTURES.len()]);
    let mut unknown = Vec::new();
    for block in blocks_and_text()? {
        let (of_others, seen) = if block.in_text { (FORMS, &mut forms) } else { (PICTURES, &mut pictures) };
        if let Some(row) = of_others.iter().position(|row| is_no_command(row, &block)) {
            seen[row] = true;
            continue;
        }
        for command in block.commands() {
            match COMMANDS.iter().position(|row| fits(row, &block.page, &command)) {
                Some(row) => {
                    known[row] = true;
                    typed.push(Typed { page: block.page.clone(), command, fate: COMMANDS[row].2 });
                }
                None => unknown.push(format!("{}: {command}", block.page)),
            }
        }
    }
    ensure!(unknown.is_empty(), "what becomes of these is not in the table:\n{}", unknown.join("\n"));
    let commands = COMMANDS.iter().map(|(page, text, _)| (page, text)).zip(known);
    let others = [FORMS, PICTURES].into_iter().flatten().map(|(page, text)| (page, text));
    let rows = commands.chain(others.zip([forms, pictures].concat()));
    let idle: Vec<String> =
        rows.filter(|(_, known)| !known).map(|((page, text), _)| format!("{page} {text}")).collect();
    ensure!(idle.is_empty(), "nothing in the pages is like this any more:\n{}", idle.join("\n"));
    Ok(typed)
}

/// Whether one of these rows says that this is only to be read: as a whole in the text, and by its beginning in a
/// block.
fn is_no_command((page, text): &(&str, &str), block: &Block) -> bool {
    let first = block.first().trim_start();
    block.page == *page && if block.in_text { first == *text } else { first.starts_with(text.trim_start()) }
}

/// Whether a row is about this command. A row that ends with a letter or digit does not end within a word, so that it
/// excuses no command that only begins like another one.
fn fits((of, begins, _): &Row, page: &str, command: &str) -> bool {
    let rest = (of.is_empty() || *of == page).then(|| command.strip_prefix(begins)).flatten();
    let ends_a_word = !begins.ends_with(|last: char| last.is_ascii_alphanumeric());
    rest.is_some_and(|rest| ends_a_word || rest.chars().next().is_none_or(char::is_whitespace))
}
