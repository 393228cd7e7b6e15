//! The effect of an edit, in words. Pure.

use crate::edit::Change;
use crate::forecast::Forecast;
use crate::report::{Report, Trouble};
use crate::snapshot::Snapshot;
use crate::text::{columns, count};
use api::EtcdCluster;
use api::conditions::{MACHINES_UP_TO_DATE, reasons};
use api::etcd_cluster::RolloutType;
use api::names::PAUSED_ANNOTATION;
use etcd_cluster_controller::build::replaces_from;
use etcd_cluster_controller::plan::WhyDeleted;
use kube::ResourceExt;

/// What is said of an edit that a rollout takes up.
const ON: &str = "A rollout is under way, and it goes on with this.";

/// An edit of an EtcdCluster, and its effect.
pub struct Edit<'a> {
    /// The existing objects.
    pub live: &'a Snapshot,
    /// The edited EtcdCluster, with the defaults of the API server.
    pub edited: &'a EtcdCluster,
    /// The fields that differ.
    pub changes: &'a [Change],
    /// The effect of the edit.
    pub forecast: &'a Forecast,
}

impl Edit<'_> {
    /// Whether the provider would do what the edit asks for.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.has_begun() && self.forecast.refused.is_some()
    }

    /// The whole text, as lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.head();
        match &self.forecast.refused {
            _ if !self.has_begun() => lines.push(
                "etcd has not come up yet. Machines that are held back are made again from the new spec; what follows cannot be foreseen."
                    .to_owned(),
            ),
            Some(why) => {
                lines.push("The API server accepts it, and the provider refuses it:".to_owned());
                lines.push(format!("  {why}."));
                lines.push("No Machine is replaced for it.".to_owned());
                // Members may come and go all the same: what is refused are their settings.
                if !self.forecast.deleted.is_empty() || !self.forecast.made.is_empty() {
                    lines.extend(self.figures());
                    lines.extend(self.notes());
                }
            }
            None => {
                lines.push(self.verdict());
                lines.extend(self.figures());
                lines.extend(self.notes());
            }
        }
        lines
    }

    fn has_begun(&self) -> bool {
        self.live.etcd.status.as_ref().is_some_and(|status| status.initialized)
    }

    fn head(&self) -> Vec<String> {
        let name = format!("EtcdCluster {}/{}", self.edited.namespace().unwrap_or_default(), self.edited.name_any());
        if self.changes.is_empty() {
            return vec![format!("{name}: no field would change")];
        }
        let mut lines = vec![format!("{name}: {} would change", count(self.changes.len(), "field"))];
        lines.extend(self.changes.iter().map(|change| format!("  {}", change.describe())));
        lines
    }

    /// Names of the Machines that are deleted for this reason.
    fn deleted(&self, why: WhyDeleted) -> Vec<&str> {
        let deleted = self.forecast.deleted.iter().filter(|(_, reason)| *reason == why);
        deleted.map(|(machine, _)| machine.as_str()).collect()
    }

    fn verdict(&self) -> String {
        let outdated = self.deleted(WhyDeleted::Outdated);
        let rolls = !outdated.is_empty();
        // Those that go are the ones that the rollout has made.
        let goes_back = !outdated.iter().any(|name| self.forecast.differ_before.iter().any(|before| before == name));
        let outdated = self.forecast.outdated.len();
        let stays = self.edited.spec.rollout_strategy.type_ == RolloutType::OnDelete;
        match (rolls, self.is_rolling()) {
            (true, false) => "It starts a rollout.".to_owned(),
            (true, true) if goes_back && self.forecast.made.is_empty() => {
                "It takes the rollout that is under way back: the new Machines go.".to_owned()
            }
            (true, true) => ON.to_owned(),
            (false, _) if outdated > 0 && stays => format!(
                "It starts no rollout: {} would no longer match the spec, and stay until you delete them (spec.rolloutStrategy.type is OnDelete).",
                count(outdated, "Machine")
            ),
            (false, _) if outdated > 0 => format!(
                "It asks for a rollout, which cannot begin now: {} would no longer match the spec.",
                count(outdated, "Machine")
            ),
            // The last old Machines are on their way out.
            (false, true) if !self.forecast.differ_after.is_empty() => ON.to_owned(),
            (false, true) => "It ends the rollout that is under way.".to_owned(),
            (false, false) => {
                "It starts no rollout: no Machine would be replaced for not matching the spec.".to_owned()
            }
        }
    }

    /// Whether a rollout is under way before the edit, also one that a pause holds up.
    fn is_rolling(&self) -> bool {
        let is_it = |trouble: &Trouble| trouble.type_ == MACHINES_UP_TO_DATE && trouble.status == "False";
        let others = [reasons::MADE_FROM_AN_EARLIER_SPEC, reasons::UNSUPPORTED_VERSION_CHANGE];
        let troubles = Report::new(self.live).conditions;
        troubles.iter().any(|trouble| is_it(trouble) && !others.contains(&trouble.reason.as_str()))
    }

    fn figures(&self) -> Vec<String> {
        let forecast = self.forecast;
        let mut rows = vec![Vec::new()];
        let mut row = |what: &str, value: String| rows.push(vec![format!("  {what}"), value]);
        let outdated = if forecast.made.is_empty() { "deleted, as not matching" } else { "replaced" };
        for (why, what) in [
            (WhyDeleted::Outdated, outdated),
            (WhyDeleted::Surplus, "deleted, as too many"),
            (WhyDeleted::Unhealthy, "replaced, as unhealthy"),
            (WhyDeleted::Marked, "replaced, as marked"),
            (WhyDeleted::Stuck, "replaced, as stuck"),
        ] {
            let names = self.deleted(why);
            if !names.is_empty() {
                row(what, format!("{}{}", names.join(", "), order(names.len())));
            }
        }
        if !forecast.made.is_empty() {
            row("made", forecast.made.join(", "));
        }
        if forecast.deleted.is_empty() && forecast.made.is_empty() {
            row(
                "Machines",
                match forecast.machines_then {
                    then if then == forecast.machines_now => format!("{then}, as now"),
                    then => format!("{then} in the end (now {})", forecast.machines_now),
                },
            );
        } else {
            row("Machines at the peak", self.peak());
        }
        row("control plane", control_plane(forecast.control_plane_rollouts));
        if let Some((reason, message)) = &forecast.held_up {
            row("then held up by", format!("{reason}: {message}"));
        }
        columns(&rows).into_iter().skip(1).collect()
    }

    fn peak(&self) -> String {
        let forecast = self.forecast;
        let leaving = match forecast.peak_with_leaving {
            all if all == forecast.peak => String::new(),
            all => format!(", up to {all} with those on their way out"),
        };
        format!("{}{leaving} (now {})", forecast.peak, forecast.machines_now)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.live.etcd.metadata.deletion_timestamp.is_some() {
            notes.push("It is being deleted: nothing of this happens.".to_owned());
        }
        let cluster = self.live.cluster.as_ref().filter(|cluster| cluster.is_paused());
        if self.edited.annotations().contains_key(PAUSED_ANNOTATION) {
            notes.push("It is paused: nothing of this happens before the pause is lifted.".to_owned());
        } else if let Some(cluster) = cluster {
            notes.push(format!("Cluster {} is paused: nothing of this happens before that is lifted.", cluster.name));
        }
        if let Some(from) = replaces_from(self.edited).filter(|from| *from > self.live.now) {
            notes.push(format!("Machines are not replaced for spec.rolloutAfter before {from:.0}."));
        }
        if !self.forecast.deleted.is_empty() || !self.forecast.made.is_empty() {
            notes.push(
                "Assumed: new machines boot, members stay as they are, the control plane rolls out when it is told, and nobody changes anything else."
                    .to_owned(),
            );
        }
        notes
    }
}

fn order(number: usize) -> &'static str {
    if number > 1 { " (in this order)" } else { "" }
}

fn control_plane(rollouts: usize) -> String {
    match rollouts {
        0 => "does not roll out".to_owned(),
        1 => "rolls out once".to_owned(),
        2 => "rolls out twice".to_owned(),
        more => format!("rolls out {more} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::changes;
    use crate::fixture::{self, Scene};
    use crate::forecast::{assumed_template, forecast};
    use serde_json::{json, to_value};

    fn told(live: &Snapshot, change: impl FnOnce(&mut EtcdCluster)) -> String {
        let mut edited = live.etcd.clone();
        change(&mut edited);
        let changes = changes(&to_value(&live.etcd).unwrap(), &to_value(&edited).unwrap());
        let forecast = forecast(live, edited.clone(), assumed_template(&edited));
        let edit = Edit { live, edited: &edited, changes: &changes, forecast: &forecast };
        let refused = if edit.is_refused() { "\n(refused)" } else { "" };
        format!("{}{refused}", edit.lines().join("\n"))
    }

    fn version(etcd: &mut EtcdCluster, version: &str) {
        etcd.spec.etcdadm_config_spec.version = Some(version.to_owned());
    }

    #[test]
    fn what_each_edit_does() {
        let three = fixture::healthy();
        let mut starting = fixture::healthy();
        starting.etcd.status = None;
        let mut unknown = Scene::new(3);
        unknown.etcd["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(api::names::ENDPOINTS_IN_USE_ANNOTATION);
        let unknown = unknown.read();
        let mut rolling_and_paused = fixture::rolling();
        rolling_and_paused.etcd.annotations_mut().insert(PAUSED_ANNOTATION.to_owned(), String::new());
        let mut going = fixture::healthy();
        going.etcd.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-11-23T08:00:00Z")).unwrap());
        let all = [
            ("nothing", told(&three, |_| {})),
            ("an upgrade", told(&three, |etcd| version(etcd, "3.6.17"))),
            (
                "an upgrade of three with room for one more",
                told(&three, |etcd| {
                    version(etcd, "3.6.17");
                    etcd.spec.rollout_strategy =
                        serde_json::from_value(json!({"rollingUpdate": {"maxSurge": 1}})).unwrap();
                }),
            ),
            ("a version that is refused", told(&three, |etcd| version(etcd, "3.8.0"))),
            (
                "a version that is refused, and one member",
                told(&three, |etcd| {
                    version(etcd, "3.8.0");
                    etcd.spec.replicas = 1;
                }),
            ),
            ("five members", told(&three, |etcd| etcd.spec.replicas = 5)),
            ("one member", told(&three, |etcd| etcd.spec.replicas = 1)),
            (
                "five members of another template",
                told(&three, |etcd| {
                    etcd.spec.replicas = 5;
                    etcd.spec.infrastructure_template.name = "bigger".to_owned();
                }),
            ),
            ("another interval", told(&three, |etcd| etcd.spec.health_check.interval_seconds = 5)),
            (
                "an upgrade with OnDelete",
                told(&three, |etcd| {
                    version(etcd, "3.6.17");
                    etcd.spec.rollout_strategy.type_ = RolloutType::OnDelete;
                }),
            ),
            (
                "a time to come",
                told(&three, |etcd| {
                    etcd.spec.rollout_after = Some(serde_json::from_value(json!("2026-11-24T04:00:00Z")).unwrap());
                }),
            ),
            ("an upgrade while paused", told(&fixture::paused(), |etcd| version(etcd, "3.6.17"))),
            (
                "taking a rollout back",
                told(&fixture::rolling(), |etcd| {
                    etcd.spec.etcdadm_config_spec.pre_etcdadm_commands = Vec::new();
                }),
            ),
            ("nothing in a rollout", told(&fixture::rolling(), |_| {})),
            ("nothing while the last old ones leave", told(&fixture::leaving(), |_| {})),
            ("nothing in a rollout that is paused", told(&rolling_and_paused, |_| {})),
            ("an upgrade of one that is being deleted", told(&going, |etcd| version(etcd, "3.6.17"))),
            ("an upgrade while it is not known what API servers use", told(&unknown, |etcd| version(etcd, "3.6.17"))),
            ("before etcd has come up", told(&starting, |etcd| version(etcd, "3.6.17"))),
        ];
        insta::assert_snapshot!(all.map(|(what, lines)| format!("==== {what}\n{lines}")).join("\n"));
    }
}
