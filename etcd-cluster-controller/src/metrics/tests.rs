use super::*;
use crate::fixture::Story;
use controller_support::Metrics;
use kube::runtime::{reflector, watcher};
use std::time::Duration;

pub(super) fn shown(etcds: Store<EtcdCluster>, scope: Scope, figures: &Figures) -> Metrics {
    let metrics = Metrics::default();
    let figures = figures.clone();
    let look: Look = Box::new(move |_| (figures.clone(), vec![("ca", Timestamp::from_second(77).unwrap())]));
    metrics.register("etcd clusters", |registry| {
        registry.register_collector(Box::new(EtcdMetrics::new(etcds, scope, look)));
    });
    metrics
}

pub(super) fn figures() -> Figures {
    Figures {
        leader_changes: 4,
        slowest_probe: Some(Duration::from_millis(250)),
        database_size: Some(1_500),
        database_quota: Some(8_000),
        alarms: [("NOSPACE", 2), ("CORRUPT", 0)].into(),
        members_expire: Timestamp::from_second(99).ok(),
    }
}

#[test]
fn an_etcd_cluster_of_another_manager_is_not_shown() {
    let (store, mut writer) = reflector::store::<EtcdCluster>();
    writer.apply_watcher_event(&watcher::Event::Apply(Story::new(3).etcd().clone()));
    let filtered = Scope { watch_filter: Some("blue".to_owned()), ..Scope::default() };
    assert!(shown(store.clone(), Scope::default(), &figures()).text().unwrap().contains("demo-etcd"));
    assert!(!shown(store, filtered, &figures()).text().unwrap().contains("demo-etcd"));
}

#[test]
fn an_etcd_cluster_that_is_gone_is_not_shown() {
    let (store, mut writer) = reflector::store::<EtcdCluster>();
    let metrics = shown(store, Scope::default(), &figures());
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.member(2, true);
    story.alarms(&[(0, "NOSPACE")]);
    story.settle();
    let etcd = story.etcd().clone();
    writer.apply_watcher_event(&watcher::Event::Apply(etcd.clone()));
    let text = metrics.text().unwrap();
    let since = |type_: &str| {
        let mut conditions = etcd.status.iter().flat_map(|status| &status.conditions);
        conditions.find(|condition| condition.type_ == type_).unwrap().last_transition_time.0.as_second()
    };
    let expected = [
        ("ready", "", 0),
        ("wanted_members", "", 3),
        ("members", "", 3),
        ("voters", "", 2),
        ("learners", "", 1),
        ("healthy_voters", "", 2),
        ("leaders", "", 1),
        ("machines", "", 3),
        ("up_to_date_machines", "", 3),
        ("alarm_raised", "", 1),
        ("database_size_bytes", "", 1_500),
        ("database_quota_bytes", "", 8_000),
        ("leader_changes_total", "", 4),
        ("alarms", ",alarm=\"NOSPACE\"", 2),
        ("alarms", ",alarm=\"CORRUPT\"", 0),
        ("certificate_expiry_timestamp_seconds", ",certificate=\"ca\"", 77),
        ("certificate_expiry_timestamp_seconds", ",certificate=\"members\"", 99),
        (
            "condition_transition_timestamp_seconds",
            ",condition=\"NoAlarms\",status=\"False\",reason=\"NoSpace\"",
            since("NoAlarms"),
        ),
    ];
    for (name, labels, value) in expected {
        let labels = format!("namespace=\"default\",name=\"demo-etcd\"{labels}");
        let line = format!("etcdadm_provider_etcd_cluster_{name}{{{labels}}} {value}\n");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    assert!(text.contains("slowest_probe_seconds{namespace=\"default\",name=\"demo-etcd\"} 0.25\n"), "{text}");
    writer.apply_watcher_event(&watcher::Event::Delete(etcd));
    assert!(!metrics.text().unwrap().contains("demo-etcd"));
}

#[test]
fn the_quota_is_what_etcd_says_or_what_the_spec_asks_for_or_etcds_default() {
    let seen = |told: Option<i64>, set: Option<i64>| {
        let mut etcd = Story::new(3).etcd().clone();
        let settings = etcd.spec.etcdadm_config_spec.etcd.get_or_insert_default();
        settings.quota_backend_bytes = set;
        let figures = Figures { database_quota: told, ..figures() };
        Measured { etcd: Arc::new(etcd), figures, expiries: Vec::new() }.quota()
    };
    assert_eq!(seen(Some(7), Some(8)), Some(7), "members of before a change have the quota of before");
    assert_eq!(seen(None, Some(8)), Some(8));
    assert_eq!(seen(None, None), Some(2_147_483_648));
}

#[test]
fn what_no_member_tells_is_not_shown() {
    let (store, mut writer) = reflector::store::<EtcdCluster>();
    writer.apply_watcher_event(&watcher::Event::Apply(Story::new(3).etcd().clone()));
    let text = shown(store, Scope::default(), &Figures::default()).text().unwrap();
    for name in ["database", "alarms", "slowest_probe", "condition"] {
        assert!(!text.contains(&format!("etcd_cluster_{name}")), "{name} in {text}");
    }
}
