//! What the objects of the management plane say. The observer watches them as a user of its own.

use super::KeepLogs;
use super::record::{ApiServer, Cluster, ControlPlane, Etcd, Event, Machine, Operation};
use super::recorder::Recorder;
use super::soon::Soon;
use futures::{Stream, StreamExt};
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

// The observer knows of the objects what users know. It uses nothing from our own crates, because it would not see
// their mistakes.
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const ETCD_LABEL: &str = "cluster.x-k8s.io/etcd-cluster";
const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
const MANAGED_ETCD: &str = "etcdcluster.cluster.x-k8s.io/managed-external-etcd";
const PAUSED: &str = "cluster.x-k8s.io/paused";
const IN_USE: &str = "etcdcluster.cluster.x-k8s.io/endpoints-in-use";
const IGNORE_IN_USE: &str = "etcdcluster.cluster.x-k8s.io/ignore-endpoints-in-use";
const MAX_LEARNERS: &str = "etcdcluster.cluster.x-k8s.io/max-learners";
/// A part of the placeholder, which is in a control plane until etcd has endpoints.
const PLACEHOLDER: &str = ".invalid";
/// Prefixes of the annotations that are recorded.
const ANNOTATIONS: [&str; 2] = ["etcdcluster.cluster.x-k8s.io/", "pre-terminate.delete.hook.machine.cluster.x-k8s.io/"];
/// Where a control plane has its endpoints, where a config made from it has them, and where the test bed's stub has
/// them.
const ENDPOINTS: [&str; 3] = [
    "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external/endpoints",
    "/spec/clusterConfiguration/etcd/external/endpoints",
    "/spec/etcd/external/endpoints",
];

/// The group, version and name of a kind, and the event that records one of its objects. The event is `None` for an
/// object that does not concern the observer.
type Kind = (&'static str, &'static str, &'static str, fn(&DynamicObject) -> Option<Event>);

const KINDS: [Kind; 6] = [
    ("cluster.x-k8s.io", "v1beta2", "Cluster", cluster),
    ("etcdcluster.cluster.x-k8s.io", "v1beta1", "EtcdCluster", etcd),
    ("cluster.x-k8s.io", "v1beta2", "Machine", machine),
    ("controlplane.cluster.x-k8s.io", "v1beta2", "KubeadmControlPlane", control_plane),
    ("example.org", "v1", "StubControlPlane", control_plane),
    ("bootstrap.cluster.x-k8s.io", "v1beta2", "KubeadmConfig", api_server),
];

/// Watches everything, forever. `keep_logs` is called for Machines that are being deleted.
pub(super) async fn follow(client: Client, recorder: Recorder, keep_logs: Arc<KeepLogs>) {
    let follow = |(group, version, kind, event): Kind| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let (recorder, keep_logs) = (recorder.clone(), keep_logs.clone());
        follow_kind(watcher(api, watcher::Config::default()), event, move |event| {
            if let Event::Machine(machine) = &event
                && machine.deleting
            {
                keep_logs(&machine.name);
            }
            recorder.note(event);
        })
    };
    futures::future::join_all(KINDS.map(follow)).await;
}

/// Follows one kind. An object that is missing from a new list is gone. After an error the watch is retried, and
/// meanwhile no changes are known.
async fn follow_kind(
    events: impl Stream<Item = watcher::Result<watcher::Event<DynamicObject>>>,
    describe: fn(&DynamicObject) -> Option<Event>,
    note: impl Fn(Event),
) {
    let mut events = pin!(events.backoff(Soon));
    // The objects that exist, by their key in the record, and those that a list in progress has not returned yet.
    let mut known: BTreeMap<(String, String), ()> = BTreeMap::new();
    let mut missing = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => missing.clone_from(&known),
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                if let Some(event) = describe(&object)
                    && let Some(key) = event.key()
                {
                    missing.remove(&key);
                    known.insert(key, ());
                    note(event);
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                if let Some(key) = describe(&object).and_then(|event| event.key())
                    && let Some(((what, name), ())) = known.remove_entry(&key)
                {
                    note(Event::Gone { what, name });
                }
            }
            Ok(watcher::Event::InitDone) => {
                for ((what, name), ()) in std::mem::take(&mut missing) {
                    known.remove(&(what.clone(), name.clone()));
                    note(Event::Gone { what, name });
                }
            }
            Err(_) => {}
        }
    }
}

fn name(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// The object that a label names, in the object's own namespace, as `<namespace>/<name>`; empty without the label.
fn labelled(object: &DynamicObject, label: &str) -> String {
    let namespace = object.namespace().unwrap_or_default();
    object.labels().get(label).map_or_else(String::new, |name| format!("{namespace}/{name}"))
}

fn is_deleted(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

fn text(object: &DynamicObject, pointer: &str) -> String {
    object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The parts of a text between commas or semicolons.
fn split(text: &str) -> Vec<String> {
    text.split([',', ';']).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// The endpoints of an external etcd, without the placeholder.
fn endpoints(object: &DynamicObject) -> Vec<String> {
    let lists = ENDPOINTS.iter().filter_map(|path| object.data.pointer(path)?.as_array()).flatten();
    let urls = lists.filter_map(Value::as_str).filter(|url| !url.contains(PLACEHOLDER));
    urls.map(str::to_owned).collect()
}

fn cluster(object: &DynamicObject) -> Option<Event> {
    let named = object.annotations().get(MANAGED_ETCD).map_or("", String::as_str);
    // The annotation may have the kind too, before a slash.
    let named = named.rsplit('/').next().filter(|named| !named.is_empty());
    let etcd = named.map_or_else(String::new, |named| format!("{}/{named}", object.namespace().unwrap_or_default()));
    Some(Event::Cluster(Cluster { name: name(object), deleting: is_deleted(object), etcd }))
}

fn etcd(object: &DynamicObject) -> Option<Event> {
    let annotation = |name: &str| object.annotations().get(name).cloned().unwrap_or_default();
    let mut spec = object.data["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("healthCheck");
        fields.remove("remediation");
    }
    let operation = object.data.pointer("/status/operation").map(|operation| Operation {
        what: operation["kind"].as_str().unwrap_or_default().to_owned(),
        member: operation["memberID"].as_str().unwrap_or_default().to_owned(),
    });
    let members = object.data.pointer("/status/members").and_then(Value::as_array).into_iter().flatten();
    let voters = members.filter(|member| member["role"] == "Voter").filter_map(|member| member["id"].as_str());
    let voters = voters.map(str::to_owned).collect();
    let replicas = spec["replicas"].as_u64().and_then(|replicas| usize::try_from(replicas).ok());
    // The annotation names a generation of the spec, and does not apply to later generations.
    let present = object.metadata.generation.map(|generation| generation.to_string());
    Some(Event::Etcd(Etcd {
        name: name(object),
        uid: object.uid().unwrap_or_default(),
        cluster: labelled(object, CLUSTER_LABEL),
        replicas: replicas.unwrap_or_default(),
        spec,
        deleting: is_deleted(object),
        ready: object.data.pointer("/status/ready").and_then(Value::as_bool).unwrap_or_default(),
        endpoints: split(&text(object, "/status/endpoints")),
        in_use: split(&annotation(IN_USE)),
        ignores_in_use: present.is_some_and(|present| annotation(IGNORE_IN_USE) == present),
        max_learners: annotation(MAX_LEARNERS).parse().ok(),
        operation,
        voters,
    }))
}

fn machine(object: &DynamicObject) -> Option<Event> {
    let addresses = object.data.pointer("/status/addresses").and_then(Value::as_array).into_iter().flatten();
    let is_ip = |address: &&Value| address["type"].as_str().is_some_and(|kind| kind.ends_with("IP"));
    // The status may have an empty address for a machine that is off.
    let address = |address: &Value| address["address"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let annotations = object.annotations().iter();
    let matters = |(name, _): &(&String, &String)| ANNOTATIONS.iter().any(|beginning| name.starts_with(beginning));
    Some(Event::Machine(Machine {
        name: name(object),
        uid: object.uid().unwrap_or_default(),
        etcd: labelled(object, ETCD_LABEL),
        phase: text(object, "/status/phase"),
        deleting: is_deleted(object),
        addresses: addresses.filter(is_ip).filter_map(address).collect(),
        annotations: annotations.filter(matters).map(|(name, value)| (name.clone(), value.clone())).collect(),
    }))
}

fn control_plane(object: &DynamicObject) -> Option<Event> {
    Some(Event::ControlPlane(ControlPlane {
        name: name(object),
        cluster: labelled(object, CLUSTER_LABEL),
        endpoints: endpoints(object),
        paused: object.annotations().contains_key(PAUSED),
        up_to_date: object.data.pointer("/status/upToDateReplicas").and_then(Value::as_i64).unwrap_or_default(),
    }))
}

/// An API server gets its endpoints from the config of its Machine, and keeps them.
fn api_server(object: &DynamicObject) -> Option<Event> {
    let is_control_planes = object.labels().contains_key(CONTROL_PLANE_LABEL);
    is_control_planes.then(|| {
        Event::ApiServer(ApiServer {
            name: name(object),
            cluster: labelled(object, CLUSTER_LABEL),
            endpoints: endpoints(object),
            ready: None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use serde_json::json;
    use std::cell::RefCell;
    use watcher::Event as Watch;

    fn object(kind: &str, value: &Value) -> DynamicObject {
        let mut object = json!({"apiVersion": "v1", "kind": kind});
        object.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn what_a_new_list_does_not_have_is_gone() {
        let it = |name: &str| object("Cluster", &json!({"metadata": {"name": name, "namespace": "a"}}));
        let events = vec![
            Watch::Init,
            Watch::InitApply(it("one")),
            Watch::InitApply(it("two")),
            Watch::InitDone,
            Watch::Delete(it("two")),
            Watch::Apply(it("three")),
            Watch::Init,
            Watch::InitApply(it("three")),
            Watch::InitDone,
        ];
        let told = RefCell::new(Vec::new());
        follow_kind(stream::iter(events.into_iter().map(Ok)), cluster, |event| {
            let gone = if matches!(event, Event::Gone { .. }) { "no " } else { "" };
            told.borrow_mut().push(format!("{gone}{}", event.key().unwrap().1));
        })
        .await;
        assert_eq!(told.into_inner(), ["a/one", "a/two", "no a/two", "a/three", "a/three", "no a/one"]);
    }

    #[test]
    fn a_cluster_names_its_etcd_with_or_without_the_kind() {
        let named = |annotations: &Value| {
            let it = json!({"metadata": {"name": "c", "namespace": "a", "annotations": annotations}});
            let Some(Event::Cluster(cluster)) = cluster(&object("Cluster", &it)) else { panic!() };
            cluster.etcd
        };
        assert_eq!(named(&json!({MANAGED_ETCD: "e"})), "a/e");
        assert_eq!(named(&json!({MANAGED_ETCD: "EtcdCluster.etcdcluster.cluster.x-k8s.io/e"})), "a/e");
        assert_eq!(named(&json!({})), "");
    }

    #[test]
    fn a_control_plane_of_either_kind_has_endpoints_but_for_the_placeholder() {
        let metadata = json!({"name": "p", "namespace": "a", "labels": {CLUSTER_LABEL: "c"}});
        let etcd = json!({"external": {"endpoints": ["https://placeholder.invalid:2379", "https://1:2379"]}});
        for spec in [json!({"etcd": etcd}), json!({"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": etcd}}})] {
            let it = object("AnyControlPlane", &json!({"metadata": metadata, "spec": spec}));
            let Some(Event::ControlPlane(plane)) = control_plane(&it) else { panic!() };
            assert_eq!((plane.cluster.as_str(), plane.endpoints), ("a/c", vec!["https://1:2379".to_owned()]), "{spec}");
        }
    }

    #[test]
    fn of_an_etcd_cluster_only_what_may_cause_a_rollout_is_its_spec() {
        let it = object(
            "EtcdCluster",
            &json!({
                "metadata": {"name": "e", "namespace": "a", "uid": "u", "labels": {CLUSTER_LABEL: "c"},
                    "annotations": {MAX_LEARNERS: "3", IN_USE: "https://1:2379,https://2:2379"}},
                "spec": {"replicas": 3, "healthCheck": {"intervalSeconds": 1}},
                "status": {"ready": true, "endpoints": "https://1:2379",
                    "members": [{"id": "ab", "role": "Voter"}, {"id": "cd", "role": "Learner"}],
                    "operation": {"kind": "RemoveMember", "memberID": "ab", "attempt": 1}},
            }),
        );
        let Some(Event::Etcd(etcd)) = etcd(&it) else { panic!() };
        assert_eq!((etcd.cluster.as_str(), etcd.replicas, etcd.max_learners), ("a/c", 3, Some(3)));
        assert_eq!((etcd.spec, etcd.in_use.len(), etcd.endpoints.len()), (json!({"replicas": 3}), 2, 1));
        assert_eq!((etcd.operation.unwrap().member.as_str(), etcd.voters), ("ab", vec!["ab".to_owned()]));
    }

    #[test]
    fn what_is_in_use_is_ignored_for_the_present_generation_alone() {
        let ignores = |annotations: &Value| {
            let metadata = json!({"name": "e", "namespace": "a", "generation": 3, "annotations": annotations});
            let it = json!({"metadata": metadata, "spec": {"replicas": 3}});
            let Some(Event::Etcd(etcd)) = etcd(&object("EtcdCluster", &it)) else { panic!() };
            etcd.ignores_in_use
        };
        assert!(ignores(&json!({IGNORE_IN_USE: "3"})));
        for annotations in [json!({}), json!({IGNORE_IN_USE: ""}), json!({IGNORE_IN_USE: "2"})] {
            assert!(!ignores(&annotations), "{annotations}");
        }
    }
}
