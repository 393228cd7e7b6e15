//! Metrics of etcd clusters. They are read from the watches and the prober for each scrape, so that no metric outlives
//! its EtcdCluster.

mod decisions;
#[cfg(test)]
mod named;
#[cfg(test)]
mod tests;
mod unreadable;

pub(crate) use decisions::{Answer, Decisions};
pub(crate) use unreadable::Unreadable;

use crate::prober::Figures;
use api::EtcdCluster;
use api::conditions::NO_ALARMS;
use api::etcd_cluster::{EtcdClusterStatus, MemberRole, MemberStatus};
use controller_support::Scope;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::Arc;

/// etcd's default quota for its database, in bytes.
const DEFAULT_QUOTA: i64 = 2 * 1024 * 1024 * 1024;

/// What is known of an EtcdCluster beyond the object.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// Numbers of its members.
    pub(crate) figures: Figures,
    /// When its certificates expire, each with the certificate's name.
    pub(crate) expiries: Vec<(&'static str, Timestamp)>,
    /// The latest decision.
    pub(crate) decision: Option<Answer>,
}

/// Looks up what is known of an EtcdCluster.
pub(crate) type Look = Box<dyn Fn(&EtcdCluster) -> Known + Send + Sync>;

/// Metrics of every EtcdCluster in scope: another manager reports the others.
pub(crate) struct EtcdMetrics {
    etcds: Store<EtcdCluster>,
    scope: Scope,
    look: Look,
}

impl EtcdMetrics {
    /// Metrics of the EtcdClusters in the store that are in scope of this process.
    pub(crate) fn new(etcds: Store<EtcdCluster>, scope: Scope, look: Look) -> Self {
        Self { etcds, scope, look }
    }
}

impl fmt::Debug for EtcdMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EtcdMetrics").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// One EtcdCluster with all that is known of it.
struct Measured {
    etcd: Arc<EtcdCluster>,
    known: Known,
}

impl Measured {
    fn status(&self) -> Option<&EtcdClusterStatus> {
        self.etcd.status.as_ref()
    }

    fn members(&self, wanted: impl Fn(&MemberStatus) -> bool) -> i64 {
        let members = self.status().into_iter().flat_map(|status| &status.members);
        whole(members.filter(|member| wanted(member)).count())
    }

    /// The quota of the database. `None` while no member reports the size of its database.
    fn quota(&self) -> Option<i64> {
        self.known.figures.database_size?;
        let settings = self.etcd.spec.etcdadm_config_spec.etcd.as_ref();
        let set = settings.and_then(|settings| settings.quota_backend_bytes);
        Some(self.known.figures.database_quota.or(set).unwrap_or(DEFAULT_QUOTA))
    }
}

/// Name, help and value.
type Gauge = (&'static str, &'static str, fn(&Measured) -> Option<i64>);

const GAUGES: [Gauge; 12] = [
    ("ready", "1 if all wanted members are healthy voters", |measured| {
        Some(measured.status().map_or(0, |status| i64::from(status.ready)))
    }),
    ("wanted_members", "Wanted members", |measured| Some(i64::from(measured.etcd.spec.replicas))),
    ("members", "Members in etcd's member list", |measured| Some(measured.members(|_| true))),
    ("voters", "Members that vote", |measured| Some(measured.members(|member| member.role == MemberRole::Voter))),
    ("learners", "Members that do not vote yet", |measured| {
        Some(measured.members(|member| member.role == MemberRole::Learner))
    }),
    ("healthy_voters", "Healthy voters", |measured| {
        Some(measured.status().map_or(0, |status| i64::from(status.ready_replicas)))
    }),
    ("leaders", "Members that are known to lead", |measured| Some(measured.members(|member| member.leader))),
    ("machines", "Machines that are not being deleted", |measured| {
        Some(measured.status().map_or(0, |status| i64::from(status.replicas)))
    }),
    ("up_to_date_machines", "Machines that match the spec", |measured| {
        Some(measured.status().map_or(0, |status| i64::from(status.updated_replicas)))
    }),
    ("alarm_raised", "1 if etcd has raised an alarm", |measured| {
        let mut conditions = measured.status().into_iter().flat_map(|status| &status.conditions);
        Some(i64::from(conditions.any(|condition| condition.type_ == NO_ALARMS && condition.status == "False")))
    }),
    ("database_size_bytes", "Size of the largest member's database", |measured| measured.known.figures.database_size),
    ("database_quota_bytes", "Size at which etcd refuses writes", Measured::quota),
];

/// Sets of further labels, each with its value.
type Points = Vec<(Vec<(&'static str, String)>, i64)>;

/// Name, help, and the function that returns a value for each set of labels.
type Labelled = (&'static str, &'static str, fn(&Measured) -> Points);

const LABELLED: [Labelled; 4] = [
    ("alarms", "Members that an alarm is about, by kind of alarm", |measured| {
        let alarms = measured.known.figures.alarms.iter();
        alarms.map(|(kind, count)| (vec![("alarm", (*kind).to_owned())], whole(*count))).collect()
    }),
    ("certificate_expiry_timestamp_seconds", "When the first certificate of a kind expires", |measured| {
        let members = measured.known.figures.members_expire.map(|expires| ("members", expires));
        let all = measured.known.expiries.iter().copied().chain(members);
        all.map(|(name, expires)| (vec![("certificate", name.to_owned())], expires.as_second())).collect()
    }),
    ("condition_transition_timestamp_seconds", "Since when a condition has had its status", |measured| {
        let conditions = measured.status().into_iter().flat_map(|status| &status.conditions);
        let labels = |type_: &str, status: &str, reason: &str| {
            vec![("condition", type_.to_owned()), ("status", status.to_owned()), ("reason", reason.to_owned())]
        };
        let points = conditions.map(|condition| {
            let since = condition.last_transition_time.0.as_second();
            (labels(&condition.type_, &condition.status, &condition.reason), since)
        });
        points.collect()
    }),
    ("last_decision", "1 for what was decided last, by answer and reason", |measured| {
        let decided = measured.known.decision.iter();
        decided
            .map(|Answer { answer, reason }| (vec![("answer", (*answer).to_owned()), ("reason", reason.clone())], 1))
            .collect()
    }),
];

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Collector for EtcdMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut etcds = self.etcds.state();
        etcds.retain(|etcd| self.scope.reconciles(etcd.as_ref()));
        let all: Vec<Measured> = etcds
            .into_iter()
            .map(|etcd| {
                let known = (self.look)(&etcd);
                Measured { etcd, known }
            })
            .collect();
        let encoder = &mut encoder;
        for (name, help, value) in GAUGES {
            let one = |measured: &Measured| value(measured).map(|value| (Vec::new(), ConstGauge::new(value)));
            show(encoder, &all, name, help, one)?;
        }
        for (name, help, points) in LABELLED {
            let each = |measured: &Measured| {
                points(measured).into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)))
            };
            show(encoder, &all, name, help, each)?;
        }
        show(
            encoder,
            &all,
            "slowest_probe_seconds",
            "Duration of the slowest of the members' latest probes",
            |measured| {
                measured.known.figures.slowest_probe.map(|took| (Vec::new(), ConstGauge::new(took.as_secs_f64())))
            },
        )?;
        show(encoder, &all, "leader_changes", "Changes of the leader that this manager has seen", |measured| {
            Some((Vec::new(), ConstCounter::new(measured.known.figures.leader_changes)))
        })
    }
}

/// Writes one metric of all EtcdClusters. An EtcdCluster without a value is left out.
fn show<M: EncodeMetric, P: IntoIterator<Item = (Vec<(&'static str, String)>, M)>>(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[Measured],
    name: &str,
    help: &str,
    points: impl Fn(&Measured) -> P,
) -> fmt::Result {
    let of = |measured: &Measured| {
        let own = [("namespace", measured.etcd.namespace().unwrap_or_default()), ("name", measured.etcd.name_any())];
        points(measured).into_iter().map(move |(labels, metric)| (own.iter().cloned().chain(labels).collect(), metric))
    };
    let points: Vec<(Vec<(&'static str, String)>, M)> = all.iter().flat_map(of).collect();
    let Some((_, first)) = points.first() else { return Ok(()) };
    let name = format!("etcd_cluster_{name}");
    let mut family = encoder.encode_descriptor(&name, help, None, first.metric_type())?;
    for (labels, metric) in &points {
        metric.encode(family.encode_family(labels)?)?;
    }
    Ok(())
}
