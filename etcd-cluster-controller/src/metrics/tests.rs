use super::*;
use crate::fixture::Story;
use crate::plan::{Plan, wait};
use api::conditions::reasons;
use controller_support::Metrics;
use kube::runtime::{reflector, watcher};
use std::time::Duration;

pub(super) fn shown(etcds: Store<EtcdCluster>, scope: Scope, known: &Known) -> Metrics {
    let (metrics, known) = (Metrics::default(), known.clone());
    show_all(&metrics, etcds, scope, Box::new(move |_| known.clone()));
    metrics
}

fn show_all(metrics: &Metrics, etcds: Store<EtcdCluster>, scope: Scope, look: Look) {
    metrics.register("etcd clusters", |registry| {
        registry.register_collector(Box::new(EtcdMetrics::new(etcds, scope, look)));
    });
}

pub(super) fn known() -> Known {
    let expiries = vec![("ca", Timestamp::from_second(77).unwrap())];
    let (answer, reason) = ("do", "CreateMachine".to_owned());
    let decision = Some(Answer { answer, reason });
    Known { figures: figures(), expiries, decision }
}

fn figures() -> Figures {
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
    assert!(shown(store.clone(), Scope::default(), &known()).text().unwrap().contains("demo-etcd"));
    assert!(!shown(store, filtered, &known()).text().unwrap().contains("demo-etcd"));
}

#[test]
fn an_etcd_cluster_that_is_gone_is_not_shown() {
    let (store, mut writer) = reflector::store::<EtcdCluster>();
    let metrics = shown(store, Scope::default(), &known());
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
        ("last_decision", ",answer=\"do\",reason=\"CreateMachine\"", 1),
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
fn only_the_last_decision_is_shown_and_only_of_an_etcd_cluster_that_is_there() {
    let (store, mut writer) = reflector::store::<EtcdCluster>();
    let etcd = Story::new(3).etcd().clone();
    let uid = etcd.uid().unwrap();
    writer.apply_watcher_event(&watcher::Event::Apply(etcd.clone()));
    let metrics = Metrics::default();
    let decisions = Decisions::new(&metrics);
    let latest = decisions.latest.clone();
    let look = move |etcd: &EtcdCluster| Known { decision: latest.of(&etcd.uid().unwrap()), ..Known::default() };
    show_all(&metrics, store, Scope::default(), Box::new(look));
    let shown = || {
        let text = metrics.text().unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("etcdadm_provider_etcd_cluster_last_decision"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(shown().is_empty(), "before anything is decided");
    for (plan, answer, reason) in [
        (Plan::Steady, "steady", ""),
        (wait(reasons::WAITING_FOR_MEMBER, "Machine demo-etcd-0 is not a member yet"), "wait", "WaitingForMember"),
        (Plan::Steady, "steady", ""),
    ] {
        decisions.count("another", &wait(reasons::PAUSED, "it is another one's"));
        decisions.count(&uid, &plan);
        let labels = format!("namespace=\"default\",name=\"demo-etcd\",answer=\"{answer}\",reason=\"{reason}\"");
        assert_eq!(shown(), [format!("{{{labels}}} 1")]);
    }
    writer.apply_watcher_event(&watcher::Event::Delete(etcd));
    assert!(shown().is_empty(), "it is gone");
}

#[test]
fn the_quota_is_what_etcd_says_or_what_the_spec_asks_for_or_etcds_default() {
    let seen = |told: Option<i64>, set: Option<i64>| {
        let mut etcd = Story::new(3).etcd().clone();
        let settings = etcd.spec.etcdadm_config_spec.etcd.get_or_insert_default();
        settings.quota_backend_bytes = set;
        let figures = Figures { database_quota: told, ..figures() };
        Measured { etcd: Arc::new(etcd), known: Known { figures, ..Known::default() } }.quota()
    };
    assert_eq!(seen(Some(7), Some(8)), Some(7), "members of before a change have the quota of before");
    assert_eq!(seen(None, Some(8)), Some(8));
    assert_eq!(seen(None, None), Some(2_147_483_648));
}

#[test]
fn what_no_member_tells_is_not_shown() {
    let (store, mut writer) = reflector::store::<EtcdCluster>();
    writer.apply_watcher_event(&watcher::Event::Apply(Story::new(3).etcd().clone()));
    let text = shown(store, Scope::default(), &Known::default()).text().unwrap();
    for name in ["database", "alarms", "slowest_probe", "condition", "certificate", "last_decision"] {
        assert!(!text.contains(&format!("etcd_cluster_{name}")), "{name} in {text}");
    }
}
