//! The observation of one scenario, whatever its machines are made of: from the beginning to the verdict.

use super::bugs::OwnLogs;
use super::record::{Event, Line};
use super::{Insight, Observer, TIMELINE, Verdict, cost, timeline, writes};
use crate::plane::{Mark, Plane, Requests, users};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// An observer, and where its scenario began in the audit log.
pub(crate) struct Observation {
    observer: Observer,
    mark: Mark,
    own_logs: OwnLogs,
    logs: PathBuf,
    scenario: String,
}

impl Observation {
    /// Begins to observe everything that happens on a plane, for the scenario of this name.
    ///
    /// # Errors
    /// When the record cannot be created.
    pub(crate) fn begin(scenario: &str, world: &World, plane: &Plane, insight: Insight) -> Result<Self> {
        let logs = world.with_logs(scenario)?.logs().to_owned();
        let kubeconfig = plane.kubeconfig_for(users::OBSERVER)?;
        let (mark, own_logs) = (plane.mark(), OwnLogs::from_now_on(world.logs())?);
        let observer = Observer::start(scenario, &logs, kubeconfig, insight)?;
        Ok(Self { observer, mark, own_logs, logs, scenario: scenario.to_owned() })
    }

    /// The observer, for code that reports something to it.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Ends the observation, writes a timeline beside the record, and judges the record.
    ///
    /// # Errors
    /// With the unexpected violations; or when an expected one is missing, the record is not whole, or one of our
    /// programs has logged a bug.
    pub(crate) fn end(self, plane: &Plane) -> Result<()> {
        let Self { observer, mark, own_logs, logs, scenario } = self;
        let (lines, expected) = observer.stop()?;
        if let Some(cost) = cost(&lines) {
            println!("  {cost}");
        }
        let requests = plane.requests_since(mark)?;
        let writes = writes(&requests);
        let verdict = Verdict::of(&lines, &writes, &expected);
        for violation in &verdict.provoked {
            println!("  found as expected: {violation}");
        }
        let path = logs.join(TIMELINE);
        // It is not known yet whether the scenario leaves nothing behind, which is a failure too.
        let violations = [verdict.violations.clone(), verdict.provoked.clone()].concat();
        std::fs::write(&path, timeline(&lines, &writes, &violations)).context("write the timeline")?;
        let unseen = unseen(&lines, &requests);
        ensure!(unseen.is_empty(), "the observer has not seen these EtcdClusters: {unseen:?}");
        verdict.into_result().with_context(|| format!("see {} of {scenario}", path.display()))?;
        let bugs = own_logs.bugs()?;
        ensure!(bugs.is_empty(), "our programs have logged bugs:\n{}", bugs.join("\n"));
        Ok(())
    }
}

/// The EtcdClusters that these requests have made, and that no line is about. The rules judge what was seen, so they
/// would find nothing if the watch failed.
fn unseen(lines: &[Line], requests: &Requests) -> Vec<String> {
    let seen: BTreeSet<&String> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::Etcd(etcd) => Some(&etcd.name),
            _ => None,
        })
        .collect();
    let made = requests.writes();
    let made = made.iter().filter(|request| request.resource == "etcdclusters" && request.subresource.is_empty());
    let made = made.filter(|request| request.code == 201 && !request.uri.contains("dryRun="));
    let mut names: Vec<String> = made.map(|request| format!("{}/{}", request.namespace, request.name)).collect();
    // A `create` may not have the name.
    names.retain(|made| !seen.iter().any(|name| *name == made || made.ends_with('/') && name.starts_with(made)));
    names
}

#[cfg(test)]
mod tests {
    use super::super::record::Etcd;
    use super::*;

    #[test]
    fn an_etcd_cluster_that_was_made_has_to_be_seen() {
        let request = |name: &str, uri: &str, code: u16| {
            let object = format!(r#"{{"resource":"etcdclusters","namespace":"a","name":"{name}"}}"#);
            format!(
                r#"{{"kind":"Event","stage":"ResponseComplete","verb":"patch","requestURI":"{uri}","user":{{"username":"x"}},"objectRef":{object},"responseStatus":{{"metadata":{{}},"code":{code}}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z"}}"#
            )
        };
        let log = tempfile::NamedTempFile::new().unwrap();
        let mark = Mark::now(log.path());
        let all = [
            request("seen", "/x", 201),
            request("unseen", "/x", 201),
            request("tried", "/x?dryRun=All", 201),
            request("changed", "/x", 200),
        ];
        std::fs::write(log.path(), all.join("\n") + "\n").unwrap();
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let seen = Line { at, event: Event::Etcd(Etcd { name: "a/seen".to_owned(), ..Etcd::default() }) };
        assert_eq!(unseen(&[seen], &Requests::since(log.path(), mark).unwrap()), ["a/unseen"]);
    }
}
