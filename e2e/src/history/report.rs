//! A history as files, in the form that etcd's suite reads: `client-<number>/operations.json` and `watch.json`.

use super::record::{Operation, Outcome};
use super::request::Request;
use super::response::Response;
use super::watcher::Watch;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Writes everything into `directory`.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn write(directory: &Path, operations: &[Operation], watches: &[Watch]) -> Result<()> {
    let mut by_client: BTreeMap<usize, (Vec<Entry>, Vec<&Watch>)> = BTreeMap::new();
    for operation in operations {
        by_client.entry(operation.client).or_default().0.extend(entry(operation));
    }
    for watch in watches {
        by_client.entry(watch.client).or_default().1.push(watch);
    }
    for (client, (operations, watches)) in by_client {
        let client = directory.join(format!("client-{client}"));
        fs::create_dir_all(&client).with_context(|| format!("create {}", client.display()))?;
        lines(&client.join("operations.json"), &operations)?;
        lines(&client.join("watch.json"), &watches)?;
    }
    Ok(())
}

/// One request in the suite's form.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entry<'a> {
    client_id: usize,
    input: Request,
    call: i64,
    output: Output<'a>,
    r#return: i64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Answer(&'a Response),
    /// The suite treats every error as that of a request that may have happened.
    #[serde(rename_all = "PascalCase")]
    Unknown {
        error: &'a str,
    },
}

/// `None` for a request that certainly did not happen: the suite would treat it as one that may have happened.
fn entry(operation: &Operation) -> Option<Entry<'_>> {
    let Operation { stream, request, call, outcome, returned, .. } = operation;
    let (input, output) = match outcome {
        Outcome::Ok(response) => (request.clone(), Output::Answer(response)),
        Outcome::Failed(_) => return None,
        // The suite writes a lease like this if no client uses it because it may not exist.
        Outcome::Unknown(error) if matches!(request, Request::LeaseGrant { .. }) => {
            (Request::grant(0), Output::Unknown { error })
        }
        Outcome::Unknown(error) => (request.clone(), Output::Unknown { error }),
    };
    Some(Entry { client_id: *stream, input, call: *call, output, r#return: *returned })
}

/// Writes one JSON document per line. Without documents, there is no file.
fn lines<T: Serialize>(path: &Path, documents: &[T]) -> Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    let mut text = Vec::new();
    for document in documents {
        serde_json::to_writer(&mut text, document)?;
        text.write_all(b"\n")?;
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn operation(stream: usize, request: Request, outcome: Outcome) -> Operation {
        Operation { client: 4, stream, request, again: false, call: 10, outcome, returned: 20 }
    }

    #[test]
    fn what_failed_is_left_out_and_what_is_unknown_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let unknown = || Outcome::Unknown("no answer".to_owned());
        let operations = [
            operation(0, Request::delete("a"), unknown()),
            operation(1, Request::delete("a"), Outcome::Failed("nobody there".to_owned())),
            operation(1, Request::grant(77), unknown()),
        ];
        write(directory.path(), &operations, &[]).unwrap();
        let text = fs::read_to_string(directory.path().join("client-4/operations.json")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["ClientId"], 0);
        assert_eq!(lines[0]["Output"], json!({"Error": "no answer"}));
        assert_eq!((&lines[0]["Call"], &lines[0]["Return"]), (&json!(10), &json!(20)));
        assert_eq!(lines[1]["Input"]["LeaseGrant"], json!({"LeaseID": 0}));
        assert!(!directory.path().join("client-4/watch.json").exists());
    }
}
