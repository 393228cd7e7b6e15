//! What may be wrong before and after a manifest is applied: checks over what was read, one file for each. Pure.

mod certificates;
mod clocks;
mod cluster_api;
mod control_plane;
mod crds;
mod database;
mod etcd_version;
mod image;
mod link;
mod machines;
mod manager;
mod names;
mod permissions;
mod policies;
mod ports;
mod preflight;
mod replicas;
mod secrets;
mod template;

pub use permissions::{Permission, permissions};

use crate::dial::{Dialed, MemberMetrics};
use crate::facts::{Crd, Manager, Read};
use crate::secrets::SecretSummary;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All is well.
    Ok,
    /// Not looked at: the check cannot or may not look.
    Unseen,
    /// It works, but may surprise.
    Warning,
    /// It does not work.
    Fault,
}

/// A finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its verdict.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do; empty if there is nothing to do.
    pub remedy: String,
}

impl Finding {
    fn ok(seen: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, seen: seen.into(), remedy: String::new() }
    }

    fn unseen(seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unseen, seen: seen.into(), remedy: remedy.into() }
    }

    fn warning(seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, seen: seen.into(), remedy: remedy.into() }
    }

    fn fault(seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fault, seen: seen.into(), remedy: remedy.into() }
    }
}

/// What was read of the installation.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The namespace that the checks are for.
    pub namespace: String,
    /// The clock of this computer.
    pub now: Timestamp,
    /// The clock of the API server.
    pub server_time: Read<Timestamp>,
    /// The API server's version.
    pub kubernetes: Read<String>,
    /// CRDs: those that everything depends on, and those of the kinds in use.
    pub crds: Read<Vec<Crd>>,
    /// Names of admission policies and their bindings.
    pub policies: Read<BTreeSet<String>>,
    /// Managers of this provider.
    pub managers: Read<Vec<Manager>>,
    /// Managers of Cluster API.
    pub core: Read<Vec<Manager>>,
    /// The requests that the manager needs to make.
    pub permissions: Read<Vec<Permission>>,
}

/// An EtcdCluster that was read, or that is in a file.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its namespace.
    pub namespace: String,
    /// The EtcdCluster in its wanted state.
    pub etcd: Value,
    /// The existing EtcdCluster; nothing if it does not exist yet.
    pub live: Option<Value>,
    /// The Cluster that names it.
    pub cluster: Read<Option<Value>>,
    /// The control plane that the Cluster names.
    pub control_plane: Read<Option<Value>>,
    /// The CRD of the infrastructure template's kind; nothing if the kind is not served.
    pub template_crd: Read<Option<String>>,
    /// The template.
    pub template: Read<Option<Value>>,
    /// Secrets of the Cluster.
    pub secrets: Read<Vec<SecretSummary>>,
    /// The answers of its members' ports; nothing if they were not asked.
    pub dialed: Option<Vec<Dialed>>,
    /// The metrics of its members; nothing if they were not asked.
    pub metrics: Option<Read<Vec<MemberMetrics>>>,
}

impl Subject {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        text(&self.etcd, "/metadata/name")
    }

    /// Whether etcd has come up for the first time.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        let live = self.live.as_ref();
        live.and_then(|live| live.pointer("/status/initialized")?.as_bool()).unwrap_or_default()
    }

    /// The name of its Cluster: the Cluster that names it, or else the one in its label.
    #[must_use]
    pub fn cluster_name(&self) -> Option<&str> {
        match &self.cluster {
            Ok(Some(cluster)) => Some(text(cluster, "/metadata/name")),
            Ok(None) | Err(_) => {
                let live = self.live.as_ref()?;
                live.pointer("/metadata/labels")?.get(api::names::CLUSTER_NAME_LABEL)?.as_str()
            }
        }
    }
}

type OfInstallation = fn(&Installation) -> Vec<Finding>;
type OfSubject = fn(&Subject, &Installation) -> Vec<Finding>;

/// Checks of the installation, by name.
const INSTALLATION: [(&str, OfInstallation); 6] = [
    ("CRDs", crds::check),
    ("Cluster API", cluster_api::check),
    ("manager", manager::check),
    ("permissions", permissions::check),
    ("admission policies", policies::check),
    ("clocks", clocks::check),
];
/// Checks of an EtcdCluster, by name.
const SUBJECT: [(&str, OfSubject); 14] = [
    ("names", names::check),
    ("replicas", replicas::check),
    ("etcd version", etcd_version::check),
    ("image", image::check),
    ("template", template::check),
    ("Cluster", link::check),
    ("control plane", control_plane::check),
    ("preflight", preflight::check),
    ("Secrets", secrets::check),
    ("certificates", certificates::check),
    ("ports", ports::check),
    ("clocks", machines::clocks),
    ("disks", machines::disks),
    ("database", database::check),
];

/// All findings about the installation, by name of the check.
#[must_use]
pub fn of_installation(installation: &Installation) -> Vec<(&'static str, Finding)> {
    findings(INSTALLATION.map(|(name, check)| (name, check(installation))))
}

/// All findings about an EtcdCluster, by name of the check.
#[must_use]
pub fn of_subject(subject: &Subject, installation: &Installation) -> Vec<(&'static str, Finding)> {
    findings(SUBJECT.map(|(name, check)| (name, check(subject, installation))))
}

fn findings(all: impl IntoIterator<Item = (&'static str, Vec<Finding>)>) -> Vec<(&'static str, Finding)> {
    all.into_iter().flat_map(|(name, found)| found.into_iter().map(move |finding| (name, finding))).collect()
}

/// The findings as lines for users.
#[must_use]
pub fn lines(title: &str, findings: &[(&'static str, Finding)]) -> Vec<String> {
    let width = findings.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let mut lines = vec![title.to_owned()];
    for (name, finding) in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok     ",
            Verdict::Unseen => "?      ",
            Verdict::Warning => "warning",
            Verdict::Fault => "fault  ",
        };
        lines.push(format!("  {verdict}  {name:<width$}  {}", finding.seen));
        if !finding.remedy.is_empty() {
            lines.push(format!("  {:7}  {:<width$}  → {}", "", "", finding.remedy));
        }
    }
    lines
}

/// Whether any of them is a fault.
#[must_use]
pub fn is_faulty(findings: &[(&'static str, Finding)]) -> bool {
    findings.iter().any(|(_, finding)| finding.verdict == Verdict::Fault)
}

/// The text at a path of an object; empty if there is none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The finding for something that could not be read.
fn unread(what: &str, why: &str) -> Vec<Finding> {
    vec![Finding::unseen(format!("{what} cannot be read: {why}"), "")]
}

#[cfg(test)]
mod tests;
