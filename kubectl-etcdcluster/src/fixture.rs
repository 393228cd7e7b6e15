//! Snapshots for tests. Their conditions are those that the controller itself would write.

use crate::forecast::assumed_template;
use crate::observation::observation;
use crate::snapshot::{Objects, Snapshot};
use api::EtcdCluster;
use api::names;
use etcd_cluster_controller::plan::plan;
use etcd_cluster_controller::status::status;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// 2026-11-23T08:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_795_420_800, 0);
const VERSION: &str = "3.6.16";

/// The objects of a cluster, which a test may change before it reads them.
pub(crate) struct Scene {
    pub(crate) etcd: Value,
    pub(crate) machines: Vec<Value>,
    pub(crate) configs: Vec<Value>,
    pub(crate) cluster: Value,
}

impl Scene {
    /// An EtcdCluster with three replicas, this many healthy voters, and a control plane that uses it.
    pub(crate) fn new(voters: usize) -> Self {
        let mut scene = Self {
            etcd: json!({
                "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
                "metadata": {"name": "demo-etcd", "namespace": "default", "uid": "etcd-uid", "generation": 3,
                    "resourceVersion": "100",
                    "finalizers": [names::ETCD_CLUSTER_FINALIZER],
                    "annotations": {names::PINNED_VERSION_ANNOTATION: VERSION, names::MAX_LEARNERS_ANNOTATION: "3",
                        names::CLUSTER_ID_ANNOTATION: "c", names::LAST_NAME_NUMBER_ANNOTATION: "0"}},
                "spec": {"replicas": 3, "etcdadmConfigSpec": {"version": VERSION}, "infrastructureTemplate":
                    {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachineTemplate", "name": "etcd"}},
                "status": {"initialized": true, "creationComplete": true, "ready": true, "clusterID": "c",
                    "version": VERSION, "members": []}
            }),
            machines: Vec::new(),
            configs: Vec::new(),
            cluster: json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "demo", "namespace": "default", "uid": "cluster-uid",
                    "annotations": {names::MANAGED_ETCD_ANNOTATION: "demo-etcd"}},
                "spec": {"controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io",
                    "kind": "KubeadmControlPlane", "name": "demo-control-plane"}},
                "status": {"initialization": {"infrastructureProvisioned": true}}
            }),
        };
        for index in 0..voters {
            scene.machine(index);
            scene.member(index);
        }
        scene.publish();
        scene
    }

    /// A Machine with bootstrap data and an address, made from the current spec.
    pub(crate) fn machine(&mut self, index: usize) -> &mut Value {
        let name = name(index);
        let template = self.etcd["spec"]["infrastructureTemplate"].clone();
        let labels = json!({names::ETCD_CLUSTER_LABEL: "demo-etcd", names::CLUSTER_NAME_LABEL: "demo"});
        let owner = json!([{"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
            "name": "demo-etcd", "uid": "etcd-uid", "controller": true}]);
        self.etcd["metadata"]["annotations"][names::LAST_NAME_NUMBER_ANNOTATION] = json!(index.to_string());
        self.configs.push(json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "EtcdadmConfig",
            "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": {
                names::MAX_LEARNERS_ANNOTATION: self.etcd["metadata"]["annotations"][names::MAX_LEARNERS_ANNOTATION]}},
            "spec": self.etcd["spec"]["etcdadmConfigSpec"]
        }));
        self.machines.push(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{index}"), "labels": labels,
                "ownerReferences": owner, "creationTimestamp": "2026-11-23T07:00:00Z",
                "finalizers": [names::MACHINE_FINALIZER], "annotations": {
                    names::PRE_TERMINATE_HOOK_ANNOTATION: names::PRE_TERMINATE_HOOK_OWNER,
                    names::CLONED_FROM_NAME_ANNOTATION: template["name"]}},
            "spec": {"clusterName": "demo", "version": format!("v{VERSION}"), "failureDomain": domain(index),
                "bootstrap": {"dataSecretName": name, "configRef":
                    {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "EtcdadmConfig", "name": name}}},
            "status": {"phase": "Provisioned", "addresses": [{"type": "InternalIP", "address": address(index)}]}
        }));
        let last = self.machines.len() - 1;
        &mut self.machines[last]
    }

    /// A healthy voter on a Machine; the first one leads.
    pub(crate) fn member(&mut self, index: usize) -> &mut Value {
        let members = self.etcd["status"]["members"].as_array_mut().unwrap();
        members.push(json!({
            "name": name(index), "id": format!("{:x}", 0x100 + index), "machine": name(index), "role": "Voter",
            "leader": index == 0, "version": VERSION, "health": "Healthy", "healthySince": "2026-11-23T07:05:00Z",
            "peerURL": names::peer_url(&address(index)), "clientURL": names::client_url(&address(index)),
            "databaseSizeBytes": 1_300_000, "failureDomain": domain(index)
        }));
        members.last_mut().unwrap()
    }

    /// Publishes the voters to the control plane, which uses them.
    pub(crate) fn publish(&mut self) {
        let members = self.etcd["status"]["members"].as_array().unwrap();
        let urls: Vec<&str> = members.iter().filter_map(|member| member["clientURL"].as_str()).collect();
        let urls = urls.join(",");
        self.etcd["status"]["endpoints"] = json!(urls);
        self.etcd["metadata"]["annotations"][names::ENDPOINTS_IN_USE_ANNOTATION] = json!(urls);
    }

    /// The member's health check has failed since the given time.
    pub(crate) fn fails(&mut self, index: usize, since: &str) {
        let member = &mut self.etcd["status"]["members"][index];
        member.as_object_mut().unwrap().remove("healthySince");
        member["unhealthySince"] = json!(since);
        member["message"] = json!(format!("{}: no answer within 5 s", names::client_url(&address(index))));
    }

    /// An alarm of etcd, by the reason of condition NoAlarms.
    pub(crate) fn alarm(&mut self, reason: &str) {
        let since = "2026-11-23T07:30:00Z";
        self.etcd["status"]["conditions"] = json!([{
            "type": "NoAlarms", "status": "False", "reason": reason, "message": "", "lastTransitionTime": since
        }]);
    }

    /// Marks the Machine as deleted, by a person or a controller.
    pub(crate) fn delete(&mut self, index: usize) {
        self.machines[index]["metadata"]["deletionTimestamp"] = json!("2026-11-23T07:58:00Z");
    }

    /// The snapshot of the scene, with the status that the controller would write.
    pub(crate) fn read(self) -> Snapshot {
        let objects = |all: Vec<Value>| -> Vec<DynamicObject> {
            all.into_iter().map(|object| serde_json::from_value(object).unwrap()).collect()
        };
        let etcd: EtcdCluster = serde_json::from_value(self.etcd).unwrap();
        let objects = Objects {
            etcds: vec![etcd],
            machines: objects(self.machines),
            clusters: objects(vec![self.cluster]),
            configs: objects(self.configs),
            unread: Vec::new(),
        };
        let mut snapshot = objects.snapshots(NOW).pop().unwrap();
        let observation = observation(&snapshot, snapshot.etcd.clone(), assumed_template(&snapshot.etcd));
        let mut status = status(&observation, &plan(&observation), None);
        // All conditions have had their status for half an hour.
        for condition in &mut status.conditions {
            condition.last_transition_time.0 = "2026-11-23T07:30:00Z".parse().unwrap();
        }
        snapshot.etcd.status = Some(status);
        snapshot
    }
}

pub(crate) fn name(index: usize) -> String {
    format!("demo-etcd-{index}")
}

fn address(index: usize) -> String {
    format!("10.77.0.{}", 11 + index)
}

fn domain(index: usize) -> String {
    ["a", "b", "c"][index % 3].to_owned()
}

pub(crate) fn healthy() -> Snapshot {
    Scene::new(3).read()
}

/// Growth by one member after the other, as in etcd up to 3.5.
pub(crate) fn growing() -> Snapshot {
    let mut scene = Scene::new(1);
    for object in [&mut scene.etcd, &mut scene.configs[0]] {
        object["metadata"]["annotations"][names::MAX_LEARNERS_ANNOTATION] = json!("1");
    }
    scene.etcd["status"]["creationComplete"] = json!(false);
    scene.etcd["metadata"]["annotations"][names::ENDPOINTS_IN_USE_ANNOTATION] = json!("");
    // It has been booting for two minutes.
    scene.machine(1)["metadata"]["creationTimestamp"] = json!("2026-11-23T07:58:00Z");
    let held_back = scene.machine(2);
    held_back["spec"]["bootstrap"].as_object_mut().unwrap().remove("dataSecretName");
    held_back["status"] = json!({"phase": "Pending"});
    scene.read()
}

/// The third member has just been added: its Machine has no address yet, so nobody knows that the member is its own.
pub(crate) fn joining() -> Snapshot {
    let mut scene = Scene::new(2);
    scene.etcd["status"]["creationComplete"] = json!(false);
    scene.etcd["status"]["ready"] = json!(false);
    scene.machine(2).as_object_mut().unwrap().remove("status");
    let member = scene.member(2);
    *member = json!({"id": "102", "role": "Learner", "health": "Unknown", "peerURL": names::peer_url(&address(2))});
    scene.read()
}

pub(crate) fn one_down() -> Snapshot {
    let mut scene = Scene::new(3);
    scene.fails(1, "2026-11-23T07:59:20Z");
    scene.read()
}

pub(crate) fn rolling() -> Snapshot {
    let mut scene = Scene::new(3);
    scene.etcd["spec"]["etcdadmConfigSpec"]["preEtcdadmCommands"] = json!(["modprobe tls"]);
    for index in 3..5 {
        scene.machine(index);
        scene.member(index);
    }
    scene.machine(5);
    scene.member(5)["role"] = json!("Learner");
    scene.read()
}

pub(crate) fn marked() -> Snapshot {
    let mut scene = Scene::new(3);
    scene.machines[1]["metadata"]["annotations"][names::REMEDIATE_MACHINE_ANNOTATION] = json!("");
    scene.fails(2, "2026-11-23T07:59:30Z");
    scene.read()
}

pub(crate) fn leaving() -> Snapshot {
    let mut scene = Scene::new(3);
    scene.etcd["spec"]["etcdadmConfigSpec"]["preEtcdadmCommands"] = json!(["modprobe tls"]);
    for index in 3..6 {
        scene.machine(index);
        scene.member(index);
    }
    (0..3).for_each(|index| scene.delete(index));
    scene.read()
}

pub(crate) fn paused() -> Snapshot {
    let mut scene = Scene::new(3);
    scene.etcd["metadata"]["annotations"][names::PAUSED_ANNOTATION] = json!("true");
    scene.read()
}

pub(crate) fn refused() -> Snapshot {
    let mut scene = Scene::new(3);
    scene.etcd["spec"]["etcdadmConfigSpec"]["version"] = json!("3.8.0");
    scene.read()
}
