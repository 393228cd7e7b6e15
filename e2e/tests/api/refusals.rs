//! Every rule: a document that breaks it is refused with an error that names the field and says what would be right. A
//! document that barely satisfies it is accepted.

use crate::etcd_cases::cluster;
use crate::server::{Server, merged, object};
use crate::{config_cases, etcd_cases};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// One rule.
pub(crate) struct Case {
    /// The field that the error has to name.
    pub(crate) at: &'static str,
    /// What else the error has to contain.
    pub(crate) says: &'static str,
    /// A document that breaks the rule.
    pub(crate) wrong: Value,
    /// A document that is as close to it as possible, and good.
    pub(crate) right: Value,
}

impl Case {
    pub(crate) fn new(at: &'static str, says: &'static str, wrong: Value, right: Value) -> Self {
        Self { at, says, wrong, right }
    }
}

pub(crate) async fn of_etcd_clusters(server: &Server) -> Result<()> {
    let good = cluster("judged", &json!({}));
    let mut judged = Verdicts::default();
    for case in etcd_cases::cases() {
        judged.judge(server, &merged(&good, &case.wrong), &merged(&good, &case.right), case.at, case.says).await?;
    }
    judged.report()
}

/// Where a config can be: the kind, and the path of its spec.
const PLACES: [(&str, &str); 3] = [
    ("EtcdadmConfig", "spec"),
    ("EtcdadmConfigTemplate", "spec.template.spec"),
    ("EtcdCluster", "spec.etcdadmConfigSpec"),
];

pub(crate) async fn of_configs_in_every_kind(server: &Server) -> Result<()> {
    let mut judged = Verdicts::default();
    for (kind, path) in PLACES {
        let place = |spec: &Value| match kind {
            "EtcdadmConfig" => object(kind, "judged", spec),
            "EtcdadmConfigTemplate" => object(kind, "judged", &json!({"template": {"spec": spec}})),
            _ => cluster("judged", &json!({"etcdadmConfigSpec": spec})),
        };
        for case in config_cases::cases() {
            let at = if case.at.is_empty() { path.to_owned() } else { format!("{path}.{}", case.at) };
            judged.judge(server, &place(&case.wrong), &place(&case.right), &at, case.says).await?;
        }
    }
    judged.report()
}

/// kubectl requires the server to refuse unknown fields. So nothing is accepted and then ignored: not at the top, not
/// in the middle, not in a list, and not fields of the proposal and of our peers that do not exist here (yet).
pub(crate) async fn of_unknown_fields(server: &Server) -> Result<()> {
    let etcd = |change: Value| cluster("judged", &change);
    let config = |spec: Value| object("EtcdadmConfig", "judged", &spec);
    let mut judged = Verdicts::default();
    for (wrong, at) in [
        (etcd(json!({"replica": 3})), "spec.replica"),
        (
            etcd(json!({"rolloutStrategy": {"rollingUpdate": {"maxUnavailable": 1}}})),
            "spec.rolloutStrategy.rollingUpdate.maxUnavailable",
        ),
        (etcd(json!({"healthCheck": {"interval": "10s"}})), "spec.healthCheck.interval"),
        (etcd(json!({"remediation": {"maxRetries": 3}})), "spec.remediation.maxRetries"),
        (etcd(json!({"infrastructureTemplate": {"uid": "x"}})), "spec.infrastructureTemplate.uid"),
        (etcd(json!({"machineTemplate": {"metadata": {"name": "x"}}})), "spec.machineTemplate.metadata.name"),
        (etcd(json!({"etcdadmConfigSpec": {"preEtcdadmCommand": []}})), "spec.etcdadmConfigSpec.preEtcdadmCommand"),
        (config(json!({"bottlerocketConfig": {}})), "spec.bottlerocketConfig"),
        (config(json!({"certBundles": []})), "spec.certBundles"),
        (config(json!({"files": [{"path": "/a", "content": "a", "mode": "0600"}]})), "spec.files[0].mode"),
        (config(json!({"users": [{"name": "a", "password": "x"}]})), "spec.users[0].password"),
        (config(json!({"cloudInitConfig": {"etcdReleaseUrl": "https://x"}})), "spec.cloudInitConfig.etcdReleaseUrl"),
    ] {
        let good = cluster("judged", &json!({}));
        judged.judge(server, &wrong, &good, &format!("unknown field \"{at}\""), "").await?;
    }
    judged.report()
}

pub(crate) async fn of_infrastructure_without_a_spec(server: &Server) -> Result<()> {
    let mut judged = Verdicts::default();
    for kind in ["LocalCluster", "LocalMachine"] {
        let good = object(kind, "judged", &json!({}));
        let wrong = merged(&good, &json!({"spec": null}));
        judged.judge(server, &wrong, &good, "spec", "Required value").await?;
    }
    judged.report()
}

/// The message of the rule about these names.
pub(crate) const OF_FAILURE_DOMAINS: &str = "each failure domain is a name of lower-case letters";

pub(crate) async fn of_local_clusters(server: &Server) -> Result<()> {
    let local = |domains: &[&str]| object("LocalCluster", "judged", &json!({"failureDomains": domains}));
    let mut judged = Verdicts::default();
    for (wrong, right, at, says) in [
        (local(&["Zone"]), local(&["zone-1"]), "spec.failureDomains", OF_FAILURE_DOMAINS),
        (local(&[""]), local(&[]), "spec.failureDomains[0]", "at least 1 chars long"),
        (local(&["a", "a"]), local(&["a", "b"]), "spec.failureDomains[1]", "Duplicate value"),
    ] {
        judged.judge(server, &wrong, &right, at, says).await?;
    }
    judged.report()
}

/// Collects the faults, so that one run shows every rule that is wrong.
#[derive(Default)]
struct Verdicts {
    judged: usize,
    faults: Vec<String>,
}

impl Verdicts {
    async fn judge(&mut self, server: &Server, wrong: &Value, right: &Value, at: &str, says: &str) -> Result<()> {
        self.judged += 1;
        match server.try_create(wrong).await? {
            Ok(_) => self.faults.push(format!("accepted: {}", wrong["spec"])),
            // The path has to end there: `spec.versions` does not name `spec.version`.
            Err(refusal) if names(&refusal, at) && refusal.contains(says) => {}
            Err(refusal) => {
                let spec = wrong["spec"].to_string();
                let spec: String = spec.chars().take(300).collect();
                self.faults.push(format!("does not name {at} and say {says:?}: {refusal}\n  {spec}"));
            }
        }
        if let Err(refusal) = server.try_create(right).await? {
            self.faults.push(format!("good, and refused: {refusal}"));
        }
        Ok(())
    }

    fn report(self) -> Result<()> {
        ensure!(self.judged > 1, "nothing was judged");
        ensure!(self.faults.is_empty(), "{} of {}:\n{}", self.faults.len(), self.judged, self.faults.join("\n"));
        println!("{} documents refused", self.judged);
        Ok(())
    }
}

fn names(refusal: &str, path: &str) -> bool {
    refusal
        .match_indices(path)
        .any(|(start, _)| !refusal[start + path.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.'))
}
