//! Metrics of etcd clusters: read off the watch when they are asked for, so that none outlives its EtcdCluster.

use api::EtcdCluster;
use api::conditions::NO_ALARMS;
use api::etcd_cluster::MemberRole;
use controller_support::Scope;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    namespace: String,
    name: String,
}

/// Gauges of every EtcdCluster in scope: another manager tells of the others.
#[derive(Debug)]
pub(crate) struct EtcdMetrics {
    /// What is there.
    pub(crate) etcds: Store<EtcdCluster>,
    /// What this process works on.
    pub(crate) scope: Scope,
}

/// Name, help and value.
type Shown = (&'static str, &'static str, fn(&EtcdCluster) -> i64);

const GAUGES: [Shown; 7] = [
    ("etcd_cluster_ready", "1 if all wanted members are healthy voters", |etcd| {
        etcd.status.as_ref().map_or(0, |status| i64::from(status.ready))
    }),
    ("etcd_cluster_wanted_members", "Wanted members", |etcd| i64::from(etcd.spec.replicas)),
    ("etcd_cluster_members", "Members in etcd's member list", |etcd| members(etcd, |_| true)),
    ("etcd_cluster_voters", "Members that vote", |etcd| members(etcd, |role| role == MemberRole::Voter)),
    ("etcd_cluster_learners", "Members that do not vote yet", |etcd| members(etcd, |role| role == MemberRole::Learner)),
    ("etcd_cluster_healthy_voters", "Healthy voters", |etcd| {
        etcd.status.as_ref().map_or(0, |status| i64::from(status.ready_replicas))
    }),
    ("etcd_cluster_alarm_raised", "1 if etcd has raised an alarm", |etcd| {
        let mut conditions = etcd.status.iter().flat_map(|status| &status.conditions);
        i64::from(conditions.any(|condition| condition.type_ == NO_ALARMS && condition.status == "False"))
    }),
];

fn members(etcd: &EtcdCluster, wanted: fn(MemberRole) -> bool) -> i64 {
    let members = etcd.status.iter().flat_map(|status| &status.members);
    i64::try_from(members.filter(|member| wanted(member.role)).count()).unwrap_or(i64::MAX)
}

impl Collector for EtcdMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut etcds: Vec<Arc<EtcdCluster>> = self.etcds.state();
        etcds.retain(|etcd| self.scope.reconciles(etcd.as_ref()));
        for (name, help, value) in GAUGES.iter().filter(|_| !etcds.is_empty()) {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for etcd in &etcds {
                let labels = Labels { namespace: etcd.namespace().unwrap_or_default(), name: etcd.name_any() };
                ConstGauge::new(value(etcd)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use controller_support::Metrics;
    use kube::runtime::{reflector, watcher};

    fn shown(etcds: Store<EtcdCluster>, scope: Scope) -> Metrics {
        let metrics = Metrics::default();
        metrics.register("etcd clusters", |registry| {
            registry.register_collector(Box::new(EtcdMetrics { etcds, scope }));
        });
        metrics
    }

    #[test]
    fn an_etcd_cluster_of_another_manager_is_not_shown() {
        let (store, mut writer) = reflector::store::<EtcdCluster>();
        writer.apply_watcher_event(&watcher::Event::Apply(Story::new(3).etcd().clone()));
        let filtered = Scope { watch_filter: Some("blue".to_owned()), ..Scope::default() };
        assert!(shown(store.clone(), Scope::default()).text().unwrap().contains("demo-etcd"));
        assert!(!shown(store, filtered).text().unwrap().contains("demo-etcd"));
    }

    #[test]
    fn an_etcd_cluster_that_is_gone_is_not_shown() {
        let (store, mut writer) = reflector::store::<EtcdCluster>();
        let metrics = shown(store, Scope::default());
        let mut story = Story::with_voters(3, 2);
        story.machine(2);
        story.member(2, true);
        story.alarms(&[(0, "NOSPACE")]);
        story.settle();
        let etcd = story.etcd().clone();
        writer.apply_watcher_event(&watcher::Event::Apply(etcd.clone()));
        let text = metrics.text().unwrap();
        let expected = [
            ("ready", 0),
            ("wanted_members", 3),
            ("members", 3),
            ("voters", 2),
            ("learners", 1),
            ("healthy_voters", 2),
            ("alarm_raised", 1),
        ];
        for (name, value) in expected {
            let line =
                format!("etcdadm_provider_etcd_cluster_{name}{{namespace=\"default\",name=\"demo-etcd\"}} {value}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        writer.apply_watcher_event(&watcher::Event::Delete(etcd));
        assert!(!metrics.text().unwrap().contains("demo-etcd"));
    }
}
