//! A small management cluster for tests. It has objects as JSON, treats merge patches and resource versions as an API
//! server does, and takes steps with the builders of the controller. It checks every write of the hook against the
//! rules that may never be broken.

mod users;

use crate::adapter::{Adapter, KUBEADM};
use crate::build;
use crate::observation::{
    ClusterState, ControlPlane, ControlPlaneView, Etcd, EtcdView, Held, HookedMachine, Joining, Need, Observation,
    Reads, SHARED_CERTIFICATES, Secrets, Shared, Used, WrittenEndpoints, is_paused_by_us, names_of,
};
use crate::plan::{Plan, Step, plan};
use api::endpoints::{EndpointLists, parse_list};
use api::names;
use controller_support::external::Reference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const ENDPOINTS: &str = "https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379";
pub const USERS_VALUE: &str = "maintenance";

/// One Cluster and the objects around it.
#[derive(Clone)]
pub struct World {
    pub cluster: Value,
    pub etcd: Option<Value>,
    pub etcd_kind: bool,
    pub control_plane: Option<Value>,
    /// A control plane that the Cluster has referred to before.
    pub former: Option<Value>,
    /// Whether the adapter of the control plane is known.
    pub adapter: bool,
    pub secrets: BTreeMap<String, Value>,
    pub workers: Vec<String>,
    /// Machines that carry the pre-terminate hook of etcd's members.
    pub hooked: Vec<HookedMachine>,
    /// Other Clusters that exist.
    pub others: Vec<String>,
    /// Resource version of the newest write.
    pub revision: u64,
    /// Whether the user has paused the control plane. The hook does not see this field.
    pub user_pauses: bool,
    /// In seconds.
    pub now: i64,
    /// What the hook's process remembers of its own writes, besides the annotation on the control plane.
    pub remembered: Option<WrittenEndpoints>,
    /// The endpoints that the machines of the control plane use.
    pub used: Used,
    /// The endpoints that further machines of the control plane would join with. None: those in its spec.
    pub joining: Option<Joining>,
}

impl World {
    /// Everything has just been applied, and nothing has happened yet.
    pub fn applied() -> Self {
        Self {
            cluster: json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "demo", "namespace": "default", "uid": "cluster-1", "generation": 1,
                    "annotations": {names::MANAGED_ETCD_ANNOTATION: "demo-etcd"}},
                "spec": {"controlPlaneEndpoint": {"host": "10.0.0.100", "port": 6443}, "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "demo-cp"}},
            }),
            etcd: Some(json!({
                "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
                "metadata": {"name": "demo-etcd", "namespace": "default", "uid": "etcd-1", "resourceVersion": "1"},
            })),
            etcd_kind: true,
            control_plane: Some(json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
                "metadata": {"name": "demo-cp", "namespace": "default", "uid": "cp-1", "generation": 1, "resourceVersion": "1",
                    "annotations": {}},
                "spec": {"replicas": 3, "kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": {
                    "endpoints": [names::PLACEHOLDER_ENDPOINT], "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
                    "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
                    "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key"}}}}},
            })),
            former: None,
            adapter: true,
            secrets: BTreeMap::new(),
            workers: Vec::new(),
            hooked: Vec::new(),
            others: Vec::new(),
            revision: 1,
            user_pauses: false,
            now: 1000,
            remembered: None,
            used: Used::OfSpec,
            joining: None,
        }
    }

    /// Etcd is Ready, and its provider has made its Secrets.
    pub fn etcd_ready(mut self) -> Self {
        self.set_ready(true, ENDPOINTS);
        self.stage("1");
        self
    }

    pub fn set_ready(&mut self, ready: bool, endpoints: &str) {
        let revision = self.next();
        if let Some(etcd) = &mut self.etcd {
            etcd["metadata"]["resourceVersion"] = revision;
            etcd["status"] = json!({"ready": ready, "initialized": true, "endpoints": endpoints, "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "ScalingUp", "message": "1 of 3"}]});
        }
    }

    pub fn stage(&mut self, content: &str) {
        let [ca, staged, _] = names_of("demo");
        let secret =
            |name: &str, data| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
        let ca_data = json!({"tls.crt": base64(content)});
        self.secrets.insert(ca.clone(), secret(&ca, ca_data));
        let pair = json!({"tls.crt": base64(content), "tls.key": base64(content)});
        self.secrets.insert(staged.clone(), secret(&staged, pair));
    }

    pub fn delete_cluster(&mut self) {
        self.cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }

    pub fn annotations(&self) -> BTreeMap<String, String> {
        let annotations = self.control_plane.as_ref().map(|c| c["metadata"]["annotations"].clone()).unwrap_or_default();
        serde_json::from_value(annotations).unwrap_or_default()
    }

    pub fn paused(&self) -> bool {
        self.annotations().contains_key(names::PAUSED_ANNOTATION)
    }

    pub fn endpoints(&self) -> String {
        let control_plane = self.control_plane.as_ref().unwrap();
        let list = &control_plane["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"]["external"]["endpoints"];
        serde_json::from_value::<Vec<String>>(list.clone()).unwrap().join(",")
    }

    /// The manager is replaced by one that remembers nothing.
    pub fn restart(&mut self) {
        self.remembered = None;
    }

    /// The endpoints in use, as the etcd object records them.
    pub fn in_use(&self) -> Option<&str> {
        self.etcd.as_ref()?["metadata"]["annotations"][names::ENDPOINTS_IN_USE_ANNOTATION].as_str()
    }

    /// The control plane's controller reports its counts of machines.
    pub fn report_machines(&mut self, observed_generation: i64, replicas: usize, up_to_date: usize) {
        let revision = self.next();
        if let Some(control_plane) = &mut self.control_plane {
            control_plane["metadata"]["resourceVersion"] = revision;
            let status = json!({"observedGeneration": observed_generation, "replicas": replicas,
                "upToDateReplicas": up_to_date, "initialization": {"controlPlaneInitialized": true}});
            merge(&mut control_plane["status"], &status);
        }
    }

    pub fn generation(&self) -> i64 {
        self.control_plane.as_ref().map_or(0, |c| c["metadata"]["generation"].as_i64().unwrap())
    }

    pub fn published(&self) -> Option<&Value> {
        self.secrets.get(&names::apiserver_client_secret("demo"))
    }

    /// What the controller would observe.
    pub fn observe(&self) -> Observation {
        let cluster = ClusterState::read(&object(&self.cluster));
        let etcd = match (&cluster.view.etcd, &self.etcd) {
            (None, _) => Etcd::NotNamed,
            (Some(Err(message)), _) => Etcd::Invalid { message: message.clone(), retryable: false },
            (Some(Ok(_)), _) if !self.etcd_kind => {
                Etcd::Invalid { message: "no such kind".to_owned(), retryable: true }
            }
            (Some(Ok(reference)), None) => Etcd::Missing(reference.clone()),
            (Some(Ok(reference)), Some(etcd)) => {
                let exists = |name: &str| name == "demo" || self.others.iter().any(|other| other == name);
                let secrets: Vec<DynamicObject> = self.secrets.values().map(object).collect();
                let etcd = EtcdView::read(&object(etcd), reference, &cluster.view, exists);
                Etcd::Found(Box::new(etcd.with_secrets(&secrets, &cluster.view, exists)))
            }
        };
        let control_plane = match (&cluster.view.control_plane, &self.control_plane) {
            (None, _) => ControlPlane::Unset,
            (Some(reference), None) => ControlPlane::Missing(reference.clone()),
            (Some(reference), Some(object)) => self.read_control_plane(reference, object),
        };
        let needs_secrets = matches!(&control_plane, ControlPlane::Found(view) if view.needs_secrets());
        let written = match &control_plane {
            ControlPlane::Found(view) => view.written.clone(),
            _ => None,
        };
        let secrets = if needs_secrets && !cluster.view.deleting {
            let [ca, staged, published] = names_of("demo").map(|name| self.secrets.get(&name).map(object));
            Secrets::read(ca.as_ref(), staged.as_ref(), published.as_ref())
        } else {
            Secrets::default()
        };
        Observation {
            now: Time(Timestamp::from_second(self.now).unwrap()),
            cluster,
            etcd,
            control_plane,
            former: self.former().into_iter().collect(),
            secrets,
            written: WrittenEndpoints::later(written, self.remembered.clone()),
            reads: Reads::default(),
        }
    }

    /// Answers a need of the plan, as the API server would.
    pub fn read(&self, need: Need, reads: &mut Reads) {
        match need {
            Need::Used => reads.used = Some(self.used.clone()),
            Need::Joining => {
                let mut present = parse_list(&self.endpoints());
                present.remove(names::PLACEHOLDER_ENDPOINT);
                let as_present = if present.is_empty() { Joining::WithNone } else { Joining::With(present) };
                reads.joining = Some(self.joining.clone().unwrap_or(as_present));
            }
            Need::FieldManager => reads.field_manager = Some("field manager argocd".to_owned()),
            Need::Hooked => reads.hooked = Some(self.hooked.clone()),
            Need::Current => reads.is_current = true,
            Need::Workers => reads.workers = Some(self.workers.clone()),
            Need::SharedCertificates => {
                let shared = SHARED_CERTIFICATES.iter().filter_map(|name| self.secrets.get(&format!("demo-{name}")));
                reads.shared = Some(shared.map(|secret| Shared::read(&object(secret))).collect());
            }
        }
    }

    /// The plan once it needs no more reads, with its observation.
    pub fn plan(&self) -> (Observation, Plan) {
        let mut observation = self.observe();
        loop {
            match plan(&observation) {
                Plan::Do(Step::Read(need)) => self.read(need, &mut observation.reads),
                decided => return (observation, decided),
            }
        }
    }

    fn read_control_plane(&self, reference: &Reference, value: &Value) -> ControlPlane {
        let api_version = value["apiVersion"].as_str().unwrap_or_default();
        match Adapter::built_in(reference).filter(|_| self.adapter) {
            Some(adapter) => {
                let view = ControlPlaneView::read(&object(value), reference, api_version, Arc::new(adapter));
                ControlPlane::Found(Box::new(view))
            }
            None => {
                let held = Some(Held::read(&object(value), reference));
                ControlPlane::Unknown { message: "no adapter".to_owned(), unsupported: true, held }
            }
        }
    }

    fn former(&self) -> Option<Held> {
        let former = object(self.former.as_ref()?);
        let reference = Reference { group: KUBEADM.0.to_owned(), kind: KUBEADM.1.to_owned(), name: former.name_any() };
        is_paused_by_us(&former).then(|| Held::read(&former, &reference))
    }

    /// Takes a step that was planned for `observation`, which may be old. False: refused, because of a conflict.
    pub fn act(&mut self, observation: &Observation, step: &Step) -> bool {
        let (before, was_paused) = (self.annotations(), self.paused());
        let done = self.write(observation, step);
        if self.user_pauses {
            let value = self.annotations().get(names::PAUSED_ANNOTATION).cloned();
            assert_eq!(value.as_deref(), Some(USERS_VALUE), "{step:?} has taken the user's pause");
        }
        if was_paused && !self.paused() {
            assert_eq!(before[names::PAUSED_ANNOTATION], names::PAUSED_BY_HOOK_VALUE);
        }
        if !was_paused && self.paused() {
            assert!(self.cluster["status"]["conditions"].is_array(), "a pause without a condition may be left behind");
        }
        assert!(!matches!(step, Step::WriteEndpoints { endpoints, .. } if endpoints.is_empty()));
        done
    }

    fn write(&mut self, observation: &Observation, step: &Step) -> bool {
        let revision = self.next();
        let cluster = &observation.cluster.view;
        match step {
            Step::ClaimEtcd => {
                patch(self.etcd.as_mut(), &build::patch::claim(observation.found_etcd().unwrap(), cluster), revision)
            }
            Step::RecordEndpointsInUse { lists, .. } => {
                self.check_recorded(observation, lists);
                let body = build::patch::endpoints_in_use(observation.found_etcd().unwrap(), lists);
                patch(self.etcd.as_mut(), &body, revision)
            }
            Step::Read(need) => panic!("{need:?} is not a write"),
            Step::Announce(hold) => {
                let condition = crate::status::announcement(&observation.cluster, hold, &observation.now);
                let body = build::status::condition(&observation.cluster, &condition);
                self.cluster["status"] = body["status"].clone();
                true
            }
            Step::Pause => {
                let reverted = observation.written.is_some();
                assert!(reverted || !observation.released(), "a control plane that was released is paused");
                let body = build::patch::pause(observation.found_control_plane().unwrap());
                patch(self.control_plane.as_mut(), &body, revision)
            }
            Step::Unpause => {
                self.check_released(observation);
                patch(self.control_plane.as_mut(), &build::patch::unpause(&observation.held().unwrap()), revision)
            }
            Step::UnpauseFormer(held) => patch(self.former.as_mut(), &build::patch::unpause(held), revision),
            Step::WriteEndpoints { endpoints, .. } => {
                let etcd = observation.found_etcd().unwrap();
                let mut in_use = etcd.in_use.iter().flat_map(EndpointLists::iter);
                let known = in_use.any(|list| list.iter().eq(endpoints));
                assert!(known || *endpoints == etcd.endpoints, "nothing but an annotation knows {endpoints:?}");
                let record = WrittenEndpoints::after(observation.written.as_ref(), endpoints, &observation.now);
                let body = build::patch::endpoints(observation.found_control_plane().unwrap(), &record);
                let written = patch(self.control_plane.as_mut(), &body, revision);
                self.control_plane.iter_mut().filter(|_| written).for_each(respecified);
                if written {
                    self.remembered = Some(record);
                }
                written
            }
            Step::PublishClient(pair) => {
                let control_plane = observation.found_control_plane().unwrap();
                assert_eq!(control_plane.endpoints.as_ref(), Some(&observation.found_etcd().unwrap().endpoints));
                let name = names::apiserver_client_secret("demo");
                if self.secrets.contains_key(&name) {
                    return false;
                }
                let secret = build::secret::client(cluster, observation.found_etcd().unwrap(), pair);
                let mut secret = serde_json::to_value(secret).unwrap();
                secret["metadata"]["resourceVersion"] = revision;
                self.secrets.insert(name, secret);
                true
            }
            Step::UpdateClient(pair) => {
                let published = observation.secrets.published.as_ref().unwrap();
                let body = build::secret::update(cluster, observation.found_etcd().unwrap(), published, pair);
                patch(self.secrets.get_mut(&names::apiserver_client_secret("demo")), &body, revision)
            }
            Step::ConfirmDeletion => {
                let body = build::patch::confirm_deletion(observation.found_etcd().unwrap());
                patch(self.etcd.as_mut(), &body, revision)
            }
            Step::ReleaseMachines(machines) => {
                assert!(self.workers.is_empty(), "the workers need etcd");
                self.hooked.retain(|machine| !machines.contains(machine));
                true
            }
            Step::WakeControlPlane => {
                let body = build::patch::wake(observation.found_control_plane().unwrap());
                patch(self.control_plane.as_mut(), &body, revision)
            }
            Step::DeleteEtcd => {
                // The provider needs some time: the object stays for now.
                if let Some(etcd) = &mut self.etcd {
                    etcd["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                true
            }
            Step::RemoveConditions => {
                let body = build::status::without_condition(&observation.cluster);
                self.cluster["status"] = body["status"].clone();
                true
            }
        }
    }

    /// Checks that the hook records only lists that are recorded already, that the control plane has, that its machines
    /// use or would join with, or that etcd publishes.
    fn check_recorded(&self, observation: &Observation, lists: &EndpointLists) {
        let etcd = observation.found_etcd().unwrap();
        let present = observation.found_control_plane().unwrap().real_endpoints();
        let own = [&present, &etcd.endpoints].map(|list| list.iter().cloned().collect());
        let used = match &observation.reads.used {
            Some(Used::These(used)) => Some(used),
            _ => None,
        };
        let joining = match &observation.reads.joining {
            Some(Joining::With(list)) => Some(list.clone()),
            _ => None,
        };
        let recorded = etcd.in_use.iter().chain(used).flat_map(EndpointLists::iter).cloned();
        let known: EndpointLists = recorded.chain(joining).chain(own).collect();
        assert!(!lists.has_more_than(&known), "nothing but an annotation knows all of {lists}");
    }

    /// Checks that the pause is lifted only over endpoints that the hook has written or that etcd publishes. This does
    /// not hold if the Cluster or the control plane is being deleted, if the Cluster names no etcd, or if a
    /// ClusterClass or a person decides what the control plane has.
    fn check_released(&self, observation: &Observation) {
        let cluster = &observation.cluster;
        let goes = cluster.view.deleting || observation.etcd == Etcd::NotNamed;
        let theirs = |control_plane: &ControlPlaneView| cluster.topology || control_plane.given_nothing;
        let control_plane = observation.found_control_plane();
        let control_plane =
            control_plane.filter(|control_plane| !goes && !control_plane.deleting && !theirs(control_plane));
        let (Some(control_plane), Some(written)) = (control_plane, &observation.written) else { return };
        let found = control_plane.sorted_endpoints();
        let of_etcd = observation.found_etcd().is_some_and(|etcd| etcd.endpoints == found);
        assert!(of_etcd || written.endpoints == found, "the pause is lifted over {found:?}");
    }

    /// Reconciles until nothing is left to do. Returns the steps, and the plan that it ends with.
    pub fn settle(&mut self) -> (Vec<Step>, Plan) {
        let mut steps = Vec::new();
        loop {
            let (observation, decided) = self.plan();
            match decided {
                Plan::Do(step) => {
                    assert!(self.act(&observation, &step), "nobody else writes");
                    steps.push(step);
                    assert!(steps.len() < 12, "it does not come to an end: {steps:?}");
                }
                end => return (steps, end),
            }
        }
    }

    /// [`World::settle`] as text, for golden scenarios.
    pub fn story(&mut self) -> String {
        let (steps, end) = self.settle();
        let mut lines: Vec<String> = steps.iter().map(brief).collect();
        lines.push(match end {
            Plan::Wait(hold) => format!("wait: {} | {} | {:?}", hold.reason, hold.message, hold.again),
            Plan::Block(hold) => format!("block: {} | {} | {:?}", hold.reason, hold.message, hold.again),
            other => format!("{other:?}"),
        });
        lines.join("\n")
    }

    fn next(&mut self) -> Value {
        self.revision += 1;
        json!(self.revision.to_string())
    }
}

/// A step as text, without details that stories do not need.
fn brief(step: &Step) -> String {
    match step {
        Step::RecordEndpointsInUse { lists, .. } => format!("RecordEndpointsInUse({lists})"),
        Step::WriteEndpoints { endpoints, overwritten_by: None } => format!("WriteEndpoints({endpoints:?})"),
        Step::WriteEndpoints { overwritten_by: Some(by), .. } => format!("WriteEndpoints, overwritten by {by}"),
        Step::Announce(_) => "Announce".to_owned(),
        other => format!("{other:?}"),
    }
}

fn respecified(object: &mut Value) {
    object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap() + 1);
}

fn base64(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

pub fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

/// Applies a merge patch with a resource version, as the API server would. False: there is no object, or a conflict.
fn patch(target: Option<&mut Value>, body: &Value, revision: Value) -> bool {
    let Some(target) = target else { return false };
    let wanted = &body["metadata"]["resourceVersion"];
    assert!(wanted.is_string(), "a patch without a resource version could undo somebody's change");
    if *wanted != target["metadata"]["resourceVersion"] && target["metadata"]["resourceVersion"].is_string() {
        return false;
    }
    merge(target, body);
    target["metadata"]["resourceVersion"] = revision;
    true
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.as_object_mut().unwrap().remove(key);
            }
            value => merge(&mut target[key.as_str()], value),
        }
    }
}
