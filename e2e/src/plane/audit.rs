//! The requests to the API server, read from its audit log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The audit policy. It keeps the metadata of every request once the request is answered, or, for a watch, once the
/// watch has begun. It also keeps the content of patches of control planes, of our managers' writes, also those as a service account, to Clusters,
/// Machines and our own kinds, and of a person's patches of EtcdClusters, Clusters and Machines. It keeps the content
/// of no status except a KubeadmControlPlane's: a status is long, is written often, and is visible in the object.
pub(super) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [
    {"level": "Request", "verbs": ["patch"], "resources": [
      {"group": "controlplane.cluster.x-k8s.io"},
      {"group": "example.org", "resources": ["stubcontrolplanes"]}
    ]},
    {"level": "Request", "verbs": ["create", "update", "patch"],
      "users": ["provider", "provider-blue", "provider-green"], "resources": [
      {"group": "etcdcluster.cluster.x-k8s.io", "resources": ["etcdclusters"]},
      {"group": "bootstrap.cluster.x-k8s.io", "resources": ["etcdadmconfigs"]},
      {"group": "cluster.x-k8s.io", "resources": ["clusters", "machines"]}
    ]},
    {"level": "Request", "verbs": ["create", "update", "patch"], "userGroups": ["system:serviceaccounts"], "resources": [
      {"group": "etcdcluster.cluster.x-k8s.io", "resources": ["etcdclusters"]},
      {"group": "bootstrap.cluster.x-k8s.io", "resources": ["etcdadmconfigs"]},
      {"group": "cluster.x-k8s.io", "resources": ["clusters", "machines"]}
    ]},
    {"level": "Request", "verbs": ["patch"], "users": ["admin"], "resources": [
      {"group": "etcdcluster.cluster.x-k8s.io", "resources": ["etcdclusters"]},
      {"group": "cluster.x-k8s.io", "resources": ["clusters", "machines"]}
    ]},
    {"level": "Metadata"}
  ]
}"#;

/// A place in the audit log. The requests after it were recorded later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark(u64);

/// One request that the API server has answered. A watch counts when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The user that made it; see [`super::users`].
    pub user: String,
    /// The verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// API group, empty for the core group and for what is not a resource.
    pub group: String,
    /// Resource in the plural, empty for what is not a resource (discovery, health).
    pub resource: String,
    /// Subresource such as `status`, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, empty for collections and most creations.
    pub name: String,
    /// Path and query.
    pub uri: String,
    /// The client's user agent.
    pub user_agent: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// When the request came in, by the server's clock.
    pub received: Timestamp,
    /// The body of the request, if the audit policy keeps it; otherwise null.
    pub body: Value,
}

/// Requests in the order in which they were answered.
#[derive(Debug, Clone, Default)]
pub struct Requests(Vec<Request>);

impl Mark {
    /// The present end of the log at `path`. A log that does not exist yet ends at its beginning.
    pub fn now(path: &Path) -> Self {
        Self(path.metadata().map(|metadata| metadata.len()).unwrap_or_default())
    }

    /// Copies what the log at `path` holds after the mark to another file.
    ///
    /// # Errors
    /// When the log cannot be read, or the file cannot be written.
    pub(super) fn copy_rest(self, path: &Path, to: &Path) -> Result<()> {
        let mut copy = File::create(to).with_context(|| format!("create {}", to.display()))?;
        std::io::copy(&mut self.reader(path)?, &mut copy).with_context(|| format!("write {}", to.display()))?;
        Ok(())
    }

    /// What the log at `path` holds after the mark. The server does not write whole lines at once: if the mark is in
    /// the middle of a line, the rest of that line counts as earlier.
    fn reader(self, path: &Path) -> Result<BufReader<File>> {
        let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        file.seek(SeekFrom::Start(self.0.saturating_sub(1))).context("seek in the audit log")?;
        let mut reader = BufReader::new(file);
        if self.0 > 0 {
            reader.skip_until(b'\n').context("read the audit log")?;
        }
        Ok(reader)
    }
}

impl Request {
    /// Whether it was carried out.
    #[must_use]
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Requests {
    /// What the log at `path` holds after `mark`. A client may have the answer to a request a moment before the
    /// request's line is in the log.
    ///
    /// # Errors
    /// When the log cannot be read, or a whole line of it is not an audit event.
    pub fn since(path: &Path, mark: Mark) -> Result<Self> {
        let mut reader = mark.reader(path)?;
        let mut requests = Vec::new();
        let mut line = String::new();
        loop {
            line.clear();
            // A line without its end is still being written.
            if reader.read_line(&mut line).context("read the audit log")? == 0 || !line.ends_with('\n') {
                return Ok(Self(requests));
            }
            let event: Event = serde_json::from_str(&line).with_context(|| format!("read audit event {line}"))?;
            if event.counts() {
                requests.push(event.into());
            }
        }
    }

    /// Those for which `keep` returns true.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&Request) -> bool) -> Self {
        Self(self.0.iter().filter(|request| keep(request)).cloned().collect())
    }

    /// Those of one user.
    #[must_use]
    pub fn user(&self, user: &str) -> Self {
        self.filter(|request| request.user == user)
    }

    /// Those that were carried out on something in one namespace.
    #[must_use]
    pub fn done_in(&self, namespace: &str) -> Self {
        self.filter(|request| request.namespace == namespace && request.is_done())
    }

    /// Those with one verb.
    #[must_use]
    pub fn verb(&self, verb: &str) -> Self {
        self.filter(|request| request.verb == verb)
    }

    /// Those about one resource (in the plural), subresources included.
    #[must_use]
    pub fn resource(&self, resource: &str) -> Self {
        self.filter(|request| request.resource == resource)
    }

    /// Those that came in from `from` up to, not including, `to`.
    #[must_use]
    pub fn between(&self, from: Timestamp, to: Timestamp) -> Self {
        self.filter(|request| from <= request.received && request.received < to)
    }

    /// Those that change something: everything but `get`, `list` and `watch`.
    #[must_use]
    pub fn writes(&self) -> Self {
        self.filter(|request| !matches!(request.verb.as_str(), "get" | "list" | "watch"))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.0.iter()
    }
}

/// A table: how many requests of which verb about which resource, most first.
impl fmt::Display for Requests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for request in &self.0 {
            let what = match (request.resource.as_str(), request.subresource.as_str()) {
                ("", _) => request.uri.clone(),
                (resource, "") => resource.to_owned(),
                (resource, subresource) => format!("{resource}/{subresource}"),
            };
            *counts.entry((what, &request.verb)).or_default() += 1;
        }
        let mut rows: Vec<_> = counts.into_iter().collect();
        rows.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
        for ((what, verb), count) in rows {
            writeln!(formatter, "{count:>6} {verb} {what}")?;
        }
        write!(formatter, "{:>6} in all", self.0.len())
    }
}

/// The parts of an audit event that are used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user_agent: String,
    user: User,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
    #[serde(default)]
    request_object: Value,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl Event {
    /// A watch has two events, since it lasts, and the first one counts. Every other request has one event, at its end.
    fn counts(&self) -> bool {
        (self.verb == "watch") == (self.stage == "ResponseStarted")
    }
}

impl From<Event> for Request {
    fn from(event: Event) -> Self {
        Self {
            user: event.user.username,
            verb: event.verb,
            group: event.object_ref.api_group,
            resource: event.object_ref.resource,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            uri: event.request_uri,
            user_agent: event.user_agent,
            code: event.response_status.code,
            received: event.request_received_timestamp,
            body: event.request_object,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::plane::users::{ADMIN, PROVIDER, SHARDS};

    fn line(stage: &str, verb: &str, resource: &str, user: &str) -> String {
        format!(
            r#"{{"kind":"Event","stage":"{stage}","verb":"{verb}","requestURI":"/x","user":{{"username":"{user}"}},"objectRef":{{"resource":"{resource}"}},"responseStatus":{{"metadata":{{}},"code":200}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z"}}"#
        )
    }

    #[test]
    fn a_mark_in_the_middle_of_a_line_is_after_it() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let before = line("ResponseComplete", "list", "secrets", "provider");
        let (begun, rest) = before.split_at(20);
        write!(file, "{begun}").unwrap();
        let mark = Mark::now(file.path());
        assert_eq!(Requests::since(file.path(), mark).unwrap().len(), 0);
        writeln!(file, "{rest}").unwrap();
        writeln!(file, "{}", line("ResponseComplete", "patch", "machines", "admin")).unwrap();
        let later = Requests::since(file.path(), mark).unwrap();
        assert_eq!(later.to_string(), "     1 patch machines\n     1 in all");
        let copy = tempfile::NamedTempFile::new().unwrap();
        mark.copy_rest(file.path(), copy.path()).unwrap();
        let copied = std::fs::read_to_string(copy.path()).unwrap();
        assert_eq!(copied, format!("{}\n", line("ResponseComplete", "patch", "machines", "admin")));
    }

    #[test]
    fn the_policy_names_our_managers_and_the_person_as_they_are_called() {
        let policy: Value = serde_json::from_str(POLICY).unwrap();
        let named: Vec<&str> = policy["rules"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|rule| rule["users"].as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(named, [PROVIDER, SHARDS[0], SHARDS[1], ADMIN]);
    }

    #[test]
    fn a_watch_counts_once_and_a_half_written_line_not_yet() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{}", line("ResponseComplete", "list", "secrets", "provider")).unwrap();
        let mark = Mark::now(file.path());
        writeln!(file, "{}", line("ResponseStarted", "watch", "machines", "provider")).unwrap();
        writeln!(file, "{}", line("ResponseComplete", "watch", "machines", "provider")).unwrap();
        writeln!(file, "{}", line("ResponseComplete", "patch", "machines", "admin")).unwrap();
        write!(file, r#"{{"kind":"Eve"#).unwrap();

        let all = Requests::since(file.path(), Mark::default()).unwrap();
        assert_eq!((all.len(), all.verb("watch").len(), all.writes().len()), (3, 1, 1));
        let later = Requests::since(file.path(), mark).unwrap();
        assert_eq!((later.len(), later.user("provider").len(), later.resource("machines").len()), (2, 1, 2));
        assert_eq!(later.to_string(), "     1 patch machines\n     1 watch machines\n     2 in all");
    }
}
