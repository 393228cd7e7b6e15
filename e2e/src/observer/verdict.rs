//! The verdict on a record: whether it shows what the scenario expected, and nothing else that is
//! wrong.

use super::fields;
use super::record::Line;
use super::rules::{Violation, Write, check};
use crate::plane::{Request, Requests, users};
use anyhow::{Result, bail};
use serde_json::Value;

/// Where a control plane has its endpoints: Cluster API's own, and the test bed's stub.
const ENDPOINTS: [&str; 2] =
    ["/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external/endpoints", "/spec/etcd/external/endpoints"];
/// How many violations an error describes.
const TOLD: usize = 5;

/// A violation that a scenario provokes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Name of the rule.
    pub rule: &'static str,
    /// The Machine that it is about, `<namespace>/<name>`.
    pub machine: String,
}

/// What a record shows.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Violations that were not expected.
    pub violations: Vec<Violation>,
    /// Violations that were expected and found.
    pub provoked: Vec<Violation>,
    /// Violations that were expected and not found.
    pub missing: Vec<Expected>,
}

impl Verdict {
    /// Judges a record.
    #[must_use]
    pub fn of(lines: &[Line], writes: &[Write], expected: &[Expected]) -> Self {
        let is_it = |it: &Expected, found: &Violation| found.rule == it.rule && found.machine == it.machine;
        let (provoked, violations): (Vec<_>, Vec<_>) =
            check(lines, writes).into_iter().partition(|found| expected.iter().any(|it| is_it(it, found)));
        let missing = expected.iter().filter(|it| !provoked.iter().any(|found| is_it(it, found)));
        Self { missing: missing.cloned().collect(), violations, provoked }
    }

    /// Whether all expected violations were found, and no others.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.violations.is_empty() && self.missing.is_empty()
    }

    /// Fails unless all expected violations were found, and no others.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn into_result(self) -> Result<()> {
        if let Some(missing) = self.missing.first() {
            bail!("the observer should have found {:?} of {}, and has not", missing.rule, missing.machine);
        }
        if self.violations.is_empty() {
            return Ok(());
        }
        let told = self.violations.iter().take(TOLD).map(|violation| format!("\n  {violation}")).collect::<String>();
        bail!("the observer found {} violations:{told}", self.violations.len())
    }
}

/// The writes of our managers and of scenarios among these requests.
#[must_use]
pub fn writes(requests: &Requests) -> Vec<Write> {
    let mut writes: Vec<Write> = requests.writes().iter().map(write).filter(|it| it.ours || it.by_hand).collect();
    writes.sort_by_key(|write| write.at);
    writes
}

fn write(request: &Request) -> Write {
    let resource = match request.subresource.as_str() {
        "" => request.resource.clone(),
        subresource => format!("{}/{subresource}", request.resource),
    };
    let list = ENDPOINTS.iter().find_map(|path| request.body.pointer(path)?.as_array());
    let urls = |list: &Vec<Value>| list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Write {
        at: request.received,
        ours: users::is_provider(&request.user),
        by_hand: request.user == users::ADMIN,
        verb: request.verb.clone(),
        resource,
        name: format!("{}/{}", request.namespace, request.name),
        code: request.code,
        endpoints: list.map(urls),
        fields: if request.verb == "patch" { fields::changed(&request.body) } else { Vec::new() },
    }
}
