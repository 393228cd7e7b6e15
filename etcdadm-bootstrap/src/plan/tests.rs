//! Each row: what is observed, and what is planned.

use super::*;
use crate::build::objects::LockInformation;
use crate::fixture::{init, ready_to_init, ready_to_join};
use crate::observation::{DataSecret, Guard, Init, Lock, MissingValue};
use api::etcdadm_config::File;
use api::names::PAUSED_ANNOTATION;
use controller_support::pki::InvalidAuthority;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use rstest::rstest;
use std::sync::Arc;

type O = Observation;

fn changed(mut observation: Observation, change: impl FnOnce(&mut Observation)) -> Observation {
    change(&mut observation);
    observation
}

fn held(exists: Option<bool>) -> Lock {
    let holder = LockInformation { machine_name: "demo-etcd-7".to_owned(), machine_uid: Some("seventh".to_owned()) };
    let created = exists.filter(|exists| *exists).map(|_| Timestamp::UNIX_EPOCH);
    Lock::Held { holder, exists, created, resource_version: "42".to_owned() }
}

/// Makes the holder one that has been read live.
fn forget_created(observation: &mut Observation) {
    if let Lock::Held { created, .. } = &mut observation.lock {
        *created = None;
    }
}

/// Makes the Machine one without an EtcdCluster.
fn free_standing(observation: &mut Observation) {
    observation.machine.as_mut().unwrap().controller = None;
}

fn annotated(observation: &mut Observation, value: &str) {
    let annotations = [(names::MAX_LEARNERS_ANNOTATION.to_owned(), value.to_owned())].into();
    Arc::make_mut(&mut observation.config).meta_mut().annotations = Some(annotations);
}

fn missing(key: Option<&str>) -> MissingValue {
    MissingValue {
        field: "spec.files[0].contentFrom.secret".to_owned(),
        secret: "files".to_owned(),
        key: key.map(str::to_owned),
    }
}

fn bad_file(observation: &mut Observation) {
    let file = File {
        path: "/etc/../x".to_owned(),
        owner: None,
        permissions: None,
        encoding: None,
        append: None,
        content: Some(String::new()),
        content_from: None,
    };
    Arc::make_mut(&mut observation.config).spec.files.push(file);
}

const BAD_URLS: &str = "block SecretInvalid: Secret demo-etcd-init: key clientUrls must hold client URLs of the members, such as https://10.0.0.1:2379, separated by commas";

fn admitted(uids: &[&str]) -> api::admission::Admitted {
    uids.iter().map(|uid| ((*uid).to_owned(), Timestamp::UNIX_EPOCH)).collect()
}

/// The plan in one line.
fn summary(plan: &Plan) -> String {
    match plan {
        Plan::Steady => "steady".to_owned(),
        Plan::Wait(w) => format!("wait {}: {}", w.reason, w.message),
        Plan::Block(w) => format!("block {}: {}", w.reason, w.message),
        Plan::Do(step) => format!("do {step}"),
    }
}

#[rstest]
#[case::first(|_: &mut O| (), "do create bootstrap Secret demo-etcd-0 to init")]
#[case::there(|s: &mut O| s.data_secret = DataSecret::Ours, "steady")]
#[case::promised_and_not_in_the_watch(|s: &mut O| s.data_secret = DataSecret::Promised, "do read DataSecret")]
#[case::there_and_nothing_else(|s: &mut O| { s.data_secret = DataSecret::Ours; s.machine = None; s.cluster = None; s.authority = None }, "steady")]
#[case::there_and_paused(|s: &mut O| { s.data_secret = DataSecret::Ours; s.cluster.as_mut().unwrap().paused_by = Some("spec.paused".to_owned()) }, "steady")]
#[case::paused(
    |s: &mut O| s.cluster.as_mut().unwrap().paused_by = Some("spec.paused".to_owned()),
    "wait Paused: Cluster demo is paused by spec.paused"
)]
#[case::paused_itself(
    |s: &mut O| { Arc::make_mut(&mut s.config).meta_mut().annotations = Some([(PAUSED_ANNOTATION.to_owned(), String::new())].into()) },
    "wait Paused: EtcdadmConfig demo-etcd-0 is paused by annotation cluster.x-k8s.io/paused"
)]
#[case::paused_twice(
    |s: &mut O| {
        s.cluster.as_mut().unwrap().paused_by = Some("spec.paused".to_owned());
        Arc::make_mut(&mut s.config).meta_mut().annotations = Some([(PAUSED_ANNOTATION.to_owned(), String::new())].into());
    },
    "wait Paused: EtcdadmConfig demo-etcd-0 is paused by annotation cluster.x-k8s.io/paused, and Cluster demo is paused by spec.paused"
)]
#[case::foreign(
    |s: &mut O| s.data_secret = DataSecret::Foreign("Deployment web".to_owned()),
    "block NameTaken: the bootstrap data needs the name of Secret demo-etcd-0, which belongs to Deployment web; delete that Secret, or recreate the Machine under another name"
)]
#[case::refused(|s: &mut O| s.refused = Some("quota".to_owned()), "block RefusedByApiServer: the API server refused the bootstrap Secret: quota")]
#[case::no_machine(|s: &mut O| s.machine = None, "wait WaitingForMachine: no Machine refers to this EtcdadmConfig yet")]
#[case::machine_going(|s: &mut O| s.machine.as_mut().unwrap().deleting = true, "wait Deleting: Machine demo-etcd-0 is being deleted: no bootstrap data is made for it")]
#[case::no_cluster(|s: &mut O| s.cluster = None, "wait WaitingForCluster: Cluster demo does not exist yet in namespace default")]
#[case::cluster_going(|s: &mut O| s.cluster.as_mut().unwrap().deleting = true, "wait Deleting: Cluster demo is being deleted: no bootstrap data is made for its etcd")]
#[case::no_ca(
    |s: &mut O| s.authority = None,
    "wait WaitingForCertificates: Secret demo-managed-etcd with etcd's CA (tls.crt, tls.key) and the label cluster.x-k8s.io/etcd-cluster does not exist yet. The controller of the EtcdCluster makes it; without an EtcdCluster, create it"
)]
#[case::bad_ca(
    |s: &mut O| s.authority = Some(Err(InvalidAuthority::NotAPair)),
    "block SecretInvalid: Secret demo-managed-etcd: tls.key does not belong to tls.crt"
)]
#[case::no_file_secret(
    |s: &mut O| s.secret_values = Some(FoundValues::Missing(missing(None))),
    "wait WaitingForFileSecret: spec.files[0].contentFrom.secret: Secret files does not exist"
)]
#[case::no_file_key(
    |s: &mut O| s.secret_values = Some(FoundValues::Missing(missing(Some("motd")))),
    "wait WaitingForFileSecret: spec.files[0].contentFrom.secret: Secret files has no key motd"
)]
#[case::lock_free(|s: &mut O| { s.lock = Lock::Free; s.guard = None }, "do create init lock demo-etcd-lock")]
#[case::lock_lost(
    |s: &mut O| { s.lock = held(Some(true)); s.guard = None },
    "wait WaitingForInitialization: Machine demo-etcd-0 joins when Machine demo-etcd-7, created at 1970-01-01T00:00:00Z, has initialized etcd: it waits for Secret demo-etcd-init. If that one never does, look at its console, and delete that Machine: another one initializes etcd then"
)]
#[case::lock_lost_and_the_watch_lags_behind(
    |s: &mut O| { free_standing(s); s.lock = held(Some(true)); s.guard = None; forget_created(s) },
    "wait WaitingForInitialization: Machine demo-etcd-0 joins when Machine demo-etcd-7 has initialized etcd: it waits for Secret demo-etcd-init. If etcd runs there, create Secret demo-etcd-init with its client URLs (key clientUrls) and the cluster's ID (key clusterId). If it never does, look at that Machine's console, and delete it: this condition says then how to go on"
)]
#[case::holder_gone(|s: &mut O| { s.lock = held(Some(false)); s.guard = None }, "do take init lock demo-etcd-lock over from demo-etcd-7")]
#[case::lock_of_another_cluster(
    |s: &mut O| { s.lock = Lock::Foreign("demo-etcd".to_owned()); s.guard = None },
    "block NameTaken: ConfigMap demo-etcd-lock belongs to Cluster demo-etcd: one of its Machines initializes Kubernetes. Machine demo-etcd-0 initializes etcd when the ConfigMap is gone. Once Cluster demo-etcd has a control plane, delete the ConfigMap"
)]
#[case::no_lock_at_all(
    |s: &mut O| { s.lock = Lock::Unreadable; s.guard = None },
    "block NameTaken: ConfigMap demo-etcd-lock is not an init lock: its key lock-information does not name a Machine. Delete it"
)]
#[case::initialized_long_ago(
    |s: &mut O| s.guard = Some(Guard::Initialized),
    "wait WaitingForInitialization: etcd is initialized, but Secret demo-etcd-init with the client URLs of its members does not exist. The controller of the EtcdCluster makes it when a voter is healthy; without an EtcdCluster, create it (key clientUrls)"
)]
#[case::begun_by_one_that_lost_the_lock(
    |s: &mut O| s.guard = Some(Guard::Begun("demo-etcd-7".to_owned())),
    "wait WaitingForInitialization: Machine demo-etcd-7 has bootstrap data already; Machine demo-etcd-0 joins when etcd is initialized, or initializes it when Machine demo-etcd-7 is deleted"
)]
#[case::not_read_live(|s: &mut O| s.guard = None, "do read Guard")]
#[case::values_not_read(|s: &mut O| { s.secret_values = None; s.lock = Lock::Free; s.guard = None }, "do read SecretValues")]
#[case::holder_not_read(|s: &mut O| { s.lock = held(None); s.guard = None }, "do read LockHolder")]
#[case::holder_gone_and_nobody_remembers(
    |s: &mut O| { free_standing(s); s.lock = held(Some(false)); s.guard = None },
    "block WaitingForInitialization: Machine demo-etcd-7 was to initialize etcd and no longer exists; it is not known whether it has initialized etcd. If etcd has members, create Secret demo-etcd-init with their client URLs (key clientUrls) and the cluster's ID (key clusterId), and this Machine then joins. If there is no data to keep, delete ConfigMap demo-etcd-lock: a new, empty etcd is then initialized"
)]
#[case::free_standing_reads_live_too(|s: &mut O| { free_standing(s); s.guard = None }, "do read Guard")]
#[case::learner_limit_unreadable(
    |s: &mut O| annotated(s, "many"),
    "block InvalidSpec: metadata.annotations[etcdcluster.cluster.x-k8s.io/max-learners]: \"many\" is not a limit of learners; it must be a number from 1 on, the same for all members of the cluster"
)]
#[case::etcd_going(|s: &mut O| s.guard = Some(Guard::OwnerGone), "wait Deleting: the EtcdCluster of Machine demo-etcd-0 is being deleted: etcd is not initialized for it")]
#[case::unrenderable(
    bad_file,
    "block InvalidSpec: spec.files[0].path: must be an absolute path of a file, without `.`, `..` and doubled slashes"
)]
#[case::unrenderable_takes_no_lock(
    |s: &mut O| { bad_file(s); s.lock = Lock::Free; s.guard = None },
    "block InvalidSpec: spec.files[0].path: must be an absolute path of a file, without `.`, `..` and doubled slashes"
)]
fn the_first_machine(#[case] change: fn(&mut O), #[case] expected: &str) {
    assert_eq!(summary(&plan(&changed(ready_to_init(), change))), expected);
}

#[rstest]
#[case::joins(|_: &mut O| (), "do create bootstrap Secret demo-etcd-0 to join")]
#[case::even_with_the_lock(|s: &mut O| { s.lock = Lock::Ours; s.guard = Some(Guard::NotInitialized) }, "do create bootstrap Secret demo-etcd-0 to join")]
#[case::held_back(
    |s: &mut O| s.init.as_mut().unwrap().admitted = Some(admitted(&["another"])),
    "wait WaitingForAdmission: Machine demo-etcd-0 may not join yet: members join in turn, and Secret demo-etcd-init does not admit it. The controller of the EtcdCluster admits the Machine in that Secret when it is its turn; the conditions of the EtcdCluster say what has to happen first"
)]
#[case::held_back_before_anything_else_is_asked_for(
    |s: &mut O| { s.init.as_mut().unwrap().admitted = Some(admitted(&[])); s.secret_values = Some(FoundValues::Missing(missing(None))) },
    "wait WaitingForAdmission: Machine demo-etcd-0 may not join yet: members join in turn, and Secret demo-etcd-init does not admit it. The controller of the EtcdCluster admits the Machine in that Secret when it is its turn; the conditions of the EtcdCluster say what has to happen first"
)]
#[case::admitted(
    |s: &mut O| s.init.as_mut().unwrap().admitted = Some(admitted(&["another", "machine-uid"])),
    "do create bootstrap Secret demo-etcd-0 to join"
)]
#[case::from_the_watch(|s: &mut O| s.init_is_live = false, "do read InitSecret")]
#[case::held_back_by_the_watch(
    |s: &mut O| { s.init_is_live = false; s.init.as_mut().unwrap().admitted = Some(admitted(&["another"])) },
    "wait WaitingForAdmission: Machine demo-etcd-0 may not join yet: members join in turn, and Secret demo-etcd-init does not admit it. The controller of the EtcdCluster admits the Machine in that Secret when it is its turn; the conditions of the EtcdCluster say what has to happen first"
)]
#[case::values_come_first(|s: &mut O| { s.init_is_live = false; s.secret_values = None }, "do read SecretValues")]
#[case::unrenderable_costs_no_look(
    |s: &mut O| { s.init_is_live = false; bad_file(s) },
    "block InvalidSpec: spec.files[0].path: must be an absolute path of a file, without `.`, `..` and doubled slashes"
)]
#[case::gone_since_the_watch_showed_it(|s: &mut O| s.init = None, "do create init lock demo-etcd-lock")]
#[case::gone_and_etcd_has_begun(
    |s: &mut O| { s.init = None; s.lock = Lock::Ours; s.guard = Some(Guard::Initialized) },
    "wait WaitingForInitialization: etcd is initialized, but Secret demo-etcd-init with the client URLs of its members does not exist. The controller of the EtcdCluster makes it when a voter is healthy; without an EtcdCluster, create it (key clientUrls)"
)]
#[case::empty(|s: &mut O| s.init = Some(init(" , ")), BAD_URLS)]
#[case::a_cluster_id_that_is_none(
    |s: &mut O| s.init = Some(Init { cluster_id: Some("orders".to_owned()), ..init("https://a:1") }),
    "block SecretInvalid: Secret demo-etcd-init: key clusterId must hold the ID of the etcd cluster in hexadecimal, such as cdf818194e3a8c32, or not be there"
)]
#[case::a_cluster_id_from_a_file(
    |s: &mut O| s.init = Some(Init { cluster_id: Some("0xc1\n".to_owned()), ..init("https://a:1") }),
    "do create bootstrap Secret demo-etcd-0 to join"
)]
#[case::no_url(|s: &mut O| s.init = Some(init("--evil")), BAD_URLS)]
#[case::without_tls(|s: &mut O| s.init = Some(init("https://10.0.0.1:2379,http://10.0.0.2:2379")), BAD_URLS)]
#[case::no_address(|s: &mut O| s.init = Some(init("https://10.0.0.256:2379")), BAD_URLS)]
#[case::more_than_a_url(|s: &mut O| s.init = Some(init("https://a:1 $(id)")), BAD_URLS)]
fn a_further_machine(#[case] change: fn(&mut O), #[case] expected: &str) {
    assert_eq!(summary(&plan(&changed(ready_to_join(), change))), expected);
}

fn created(observation: &Observation) -> (Secret, String) {
    let Plan::Do(Step::CreateDataSecret { secret, .. }) = plan(observation) else { panic!("{:?}", plan(observation)) };
    let value = String::from_utf8(secret.data.as_ref().unwrap()["value"].0.clone()).unwrap();
    (*secret, value)
}

#[test]
fn the_secret_satisfies_the_bootstrap_contract() {
    let (secret, value) = created(&ready_to_join());
    assert!(value.contains("etcdadm join 'https://10.0.0.1:2379,https://[fd00::2]:2379' "), "{value}");
    assert_eq!(secret.data.as_ref().unwrap()["format"].0, b"cloud-config");
    assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    assert_eq!(secret.labels()[names::CLUSTER_NAME_LABEL], "demo");
    assert_eq!(secret.labels()[names::ETCD_CLUSTER_LABEL], "demo-etcd");
    let owner = &secret.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
        ("EtcdadmConfig", "config-uid", Some(true))
    );
    let (_, value) = created(&ready_to_init());
    assert!(value.contains("etcdadm init --init-system systemd --name demo-etcd-0 "), "{value}");
    // One day after 1970-01-12T13:46:40Z, when all of this is observed.
    assert!(value.contains("ETCDADM_INIT_NOT_AFTER=1970-01-13T13:46:40Z ETCDADM_TIMEOUT=24h etcdadm init "), "{value}");
}

#[test]
fn the_lock_goes_with_the_etcd_cluster_or_else_with_the_cluster() {
    let lock = |observation: &Observation| match plan(observation) {
        Plan::Do(Step::TakeLock(lock)) => *lock,
        other => panic!("{other:?}"),
    };
    let observation = changed(ready_to_init(), |s| s.lock = Lock::Free);
    let taken = lock(&observation);
    assert_eq!(
        taken.data.as_ref().unwrap()["lock-information"],
        r#"{"machineName":"demo-etcd-0","machineUID":"machine-uid"}"#
    );
    assert_eq!(
        (taken.owner_references()[0].kind.as_str(), taken.owner_references()[0].uid.as_str()),
        ("EtcdCluster", "etcd-uid")
    );
    let taken = lock(&changed(observation, |s| s.machine.as_mut().unwrap().controller = None));
    let owner = &taken.owner_references()[0];
    assert_eq!(
        (owner.api_version.as_str(), owner.kind.as_str(), owner.uid.as_str()),
        ("cluster.x-k8s.io/v1beta2", "Cluster", "cluster-uid")
    );
}

#[test]
fn what_is_not_watched_is_looked_at_less_and_less_often() {
    let again = |waited: i64| {
        let observation = changed(ready_to_init(), |s| {
            s.secret_values = Some(FoundValues::Missing(missing(None)));
            Arc::make_mut(&mut s.config).metadata.creation_timestamp = Some(Time(s.now));
            s.now = Timestamp::from_second(s.now.as_second() + waited).unwrap();
        });
        match plan(&observation) {
            Plan::Wait(waiting) => waiting.again.unwrap().as_secs(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([0, 40, 100_000].map(again), [2, 10, 60]);
    // If the clock was set back, the plan still looks again.
    assert_eq!(again(-50), 2);
}
