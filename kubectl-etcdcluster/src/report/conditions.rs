//! The conditions that do not have their normal status, and the one of them that matters most.

use api::conditions as c;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

/// A condition that does not have its normal status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// What has to happen first, and what would help.
    pub message: String,
    /// When it got this status.
    pub since: Time,
}

/// The condition types, the most important one first, each with its normal status. RollingOut is missing because it
/// repeats MachinesUpToDate, and MachinesReady because it is Unknown while Machines have no Node.
const TYPES: [(&str, &str); 14] = [
    (c::DELETING, "False"),
    (c::PAUSED, "False"),
    (c::READY, "True"),
    (c::AVAILABLE, "True"),
    (c::NO_ALARMS, "True"),
    (c::REMEDIATING, "False"),
    (c::MACHINES_UP_TO_DATE, "True"),
    (c::MACHINES_DELETING, "False"),
    (c::SCALING_DOWN, "False"),
    (c::SCALING_UP, "False"),
    (c::MEMBERS_HEALTHY, "True"),
    (c::CERTIFICATES_AVAILABLE, "True"),
    (c::INITIALIZED, "True"),
    (c::ENDPOINTS_AVAILABLE, "True"),
];

/// The conditions that do not have their normal status, the most important one first. A Ready that is True is among
/// them if its reason reports a refusal. Types of other writers are left out, because their normal status is unknown
/// here.
#[must_use]
pub(super) fn troubles(conditions: &[Condition]) -> Vec<Trouble> {
    let of_type = |(type_, well): &(&str, &str)| {
        let found = conditions.iter().find(|condition| condition.type_ == *type_)?;
        let tells = found.type_ == c::READY && found.reason != c::reasons::READY;
        (found.status != *well || tells).then(|| Trouble {
            type_: found.type_.clone(),
            status: found.status.clone(),
            reason: found.reason.clone(),
            message: found.message.clone(),
            since: found.last_transition_time.clone(),
        })
    };
    TYPES.iter().filter_map(of_type).collect()
}

impl Trouble {
    /// Whether it says nothing that another one does not already say.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        let follows = matches!(self.reason.as_str(), c::reasons::NOT_INITIALIZED | c::reasons::NO_ENDPOINTS);
        follows || (self.reason == other.reason && self.message.ends_with(&other.message))
    }

    /// The same condition without a text that was shown already: some messages end with the message of another
    /// condition.
    #[must_use]
    pub fn without(&self, said: &str) -> Self {
        let rest = self.message.strip_suffix(said).filter(|_| !said.is_empty()).unwrap_or(&self.message);
        Self { message: rest.trim_end_matches([' ', ':', ';']).to_owned(), ..self.clone() }
    }
}

/// The conditions after the most important one, each without the messages of those before it.
#[must_use]
pub fn others(troubles: &[Trouble]) -> Vec<Trouble> {
    let mut said: Vec<&Trouble> = troubles.iter().take(1).collect();
    let mut found = Vec::new();
    for trouble in troubles.iter().skip(1) {
        if !said.iter().any(|other| trouble.repeats(other)) {
            found.push(said.iter().fold(trouble.clone(), |rest, other| rest.without(&other.message)));
        }
        said.push(trouble);
    }
    found
}
