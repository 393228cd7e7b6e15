//! Reads what belongs to an EtcdCluster: from the file first, then from the API server.

use crate::doctor::Subject;
use crate::facts::Read;
use crate::gather::Gatherer;
use api::names;
use controller_support::external::{ClusterView, Reference};
use kube::Client;
use serde_json::Value;

/// An EtcdCluster to check.
pub(super) struct Sought {
    /// Its namespace.
    pub(super) namespace: String,
    /// The wanted state.
    pub(super) etcd: Value,
    /// The existing object.
    pub(super) live: Option<Value>,
    /// All objects that are applied with it.
    pub(super) file: Vec<Value>,
}

impl Sought {
    /// Reads all that the checks need besides.
    pub(super) async fn read(self, client: &Client) -> Subject {
        let mut gatherer = Gatherer::new(client.clone(), &self.namespace);
        let cluster = self.cluster(&mut gatherer).await;
        let control_plane = match &cluster {
            Err(why) => Err(why.clone()),
            Ok(cluster) => {
                let reference = cluster.as_ref().and_then(|cluster| cluster.pointer("/spec/controlPlaneRef"));
                self.referred(Reference::read(reference), &mut gatherer).await
            }
        };
        let template = Reference::read(self.etcd.pointer("/spec/infrastructureTemplate"));
        let template_crd = match &template {
            None => Ok(None),
            Some(reference) => {
                let kind = gatherer.kind(&reference.group, &reference.kind).await;
                kind.map(|kind| kind.map(|kind| format!("{}.{}", kind.plural, kind.group)))
            }
        };
        let template = self.referred(template, &mut gatherer).await;
        let mut subject = Subject {
            namespace: self.namespace,
            etcd: self.etcd,
            live: self.live,
            cluster,
            control_plane,
            template_crd,
            template,
            secrets: Ok(Vec::new()),
            dialed: None,
            metrics: None,
        };
        if let Some(cluster) = subject.cluster_name() {
            subject.secrets = gatherer.secrets(cluster).await;
        }
        subject
    }

    /// The Cluster that names it: from the file if it is there, else the existing one.
    async fn cluster(&self, gatherer: &mut Gatherer) -> Read<Option<Value>> {
        let name = self.etcd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let names_it = |object: &Value| {
            let cluster = serde_json::from_value(object.clone());
            cluster.is_ok_and(|cluster| ClusterView::read(&cluster).names_etcd_cluster(name))
        };
        let is_cluster = |object: &&Value| self.is_of(object, names::CLUSTER_GROUP, "Cluster") && names_it(object);
        if let Some(found) = self.file.iter().find(is_cluster) {
            return Ok(Some(found.clone()));
        }
        let mut naming = gatherer.objects(names::CLUSTER_GROUP, "Cluster", "").await?;
        naming.retain(names_it);
        // If several name it, the one in its label keeps it.
        let keeps = &self.etcd["metadata"]["labels"][names::CLUSTER_NAME_LABEL];
        naming.sort_by_key(|cluster| cluster["metadata"]["name"] != *keeps);
        Ok(naming.into_iter().next())
    }

    /// The object that a reference names: from the file if it is there, else the existing one.
    async fn referred(&self, reference: Option<Reference>, gatherer: &mut Gatherer) -> Read<Option<Value>> {
        let Some(Reference { group, kind, name }) = reference else { return Ok(None) };
        let is_it = |object: &&Value| self.is_of(object, &group, &kind) && object["metadata"]["name"] == name.as_str();
        match self.file.iter().find(is_it) {
            Some(found) => Ok(Some(found.clone())),
            None => gatherer.object(&group, &kind, &name).await,
        }
    }

    /// Whether an object of the file has this kind and will be in the same namespace.
    fn is_of(&self, object: &Value, group: &str, kind: &str) -> bool {
        let version = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        let namespace = object["metadata"]["namespace"].as_str();
        object["kind"] == kind
            && version.is_some_and(|(found, _)| found == group)
            && namespace.is_none_or(|namespace| namespace == self.namespace)
    }
}
