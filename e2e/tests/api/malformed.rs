//! Thousands of generated documents: each is refused with a path, or accepted and handled. No document is stored.

use crate::server::Server;
use anyhow::{Result, ensure};
use e2e::bed::crds;
use e2e::malformed::{Generator, Malformed, handled, originals, says_where};
use e2e::scenarios::seed;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;

/// How many documents are judged.
const COUNT: usize = 10_000;
/// How many are judged at the same time.
const AT_ONCE: usize = 16;
/// How many faults are shown.
const SHOWN: usize = 20;

pub(crate) async fn the_originals_are_good(server: &Server) -> Result<()> {
    for original in originals() {
        let verdict = server.try_create(&original).await?;
        ensure!(verdict.is_ok(), "good, and refused: {verdict:?}\n  {original}");
    }
    Ok(())
}

pub(crate) async fn it_is_refused_with_a_path_or_handled(server: &Server) -> Result<()> {
    let seed = seed()?;
    println!("  E2E_SEED={seed} repeats these documents");
    let made = Generator::new(seed, &crds()?)?.take(COUNT);
    let mut judged = stream::iter(made).map(|made| judge(server, made)).buffer_unordered(AT_ONCE);
    // The numbers of refused and accepted documents, by kind.
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut faults = Vec::new();
    while let Some(judgement) = judged.next().await {
        let Judgement { kind, accepted, fault } = judgement?;
        let counts = counts.entry(kind).or_default();
        if accepted {
            counts.1 += 1
        } else {
            counts.0 += 1
        }
        faults.extend(fault);
    }
    println!("  refused and accepted: {counts:?}");
    let shown = faults.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("\n");
    ensure!(faults.is_empty(), "{} of {COUNT}, E2E_SEED={seed}:\n{shown}", faults.len());
    let both = counts.values().all(|counts| counts.0 > 0 && counts.1 > 0);
    ensure!(counts.len() == crds()?.len() && both, "of some kind nothing was refused or accepted: {counts:?}");
    Ok(())
}

struct Judgement {
    kind: String,
    accepted: bool,
    fault: Option<String>,
}

async fn judge(server: &Server, made: Malformed) -> Result<Judgement> {
    let kind = made.document["kind"].as_str().unwrap_or_default().to_owned();
    let (accepted, fault) = match server.judge(&made.document).await? {
        Ok(object) => (true, handled(&object).err()),
        Err(status) if says_where(&status) => (false, None),
        Err(status) => (false, Some(format!("refused without a path: {}", status.message))),
    };
    let fault = fault.map(|fault| format!("{kind}: {fault}\n  {:?}", made.changes));
    Ok(Judgement { kind, accepted, fault })
}
