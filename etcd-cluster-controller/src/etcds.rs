//! The watch of EtcdClusters, which all controllers share: its indexes, and the stream and store that this controller
//! runs on.

use crate::metrics::Unreadable;
use api::{EtcdCluster, names};
use controller_support::{Cached, Index};
use futures::{Stream, StreamExt, future};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use std::sync::Arc;

/// EtcdClusters by the Cluster that their label names.
pub(crate) const BY_CLUSTER_LABEL: Index =
    Index::new("cluster label", |etcd| etcd.labels().get(names::CLUSTER_NAME_LABEL).cloned().into_iter().collect());

/// EtcdClusters by kind and name of their template.
pub(crate) const BY_TEMPLATE: Index =
    Index::new("infrastructure template", |etcd| referred(etcd, "/spec/infrastructureTemplate"));

/// Clusters by kind and name of their infrastructure.
pub(crate) const BY_INFRASTRUCTURE: Index =
    Index::new("infrastructure", |cluster| referred(cluster, "/spec/infrastructureRef"));

fn referred(object: &DynamicObject, path: &str) -> Vec<String> {
    let field = |name: &str| object.data.pointer(path)?.get(name)?.as_str();
    field("kind").zip(field("name")).map(|(kind, name)| kind_and_name(kind, name)).into_iter().collect()
}

/// The key by which an index finds an object that another object refers to.
pub(crate) fn kind_and_name(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

/// The changes of EtcdClusters, and a store that has each change before the stream reports it.
pub(crate) fn typed(
    etcds: &Cached,
    unreadable: Unreadable,
) -> (impl Stream<Item = Arc<EtcdCluster>> + Send + 'static, Store<EtcdCluster>) {
    let (store, mut writer) = reflector::store();
    // A controller waits for the first list of its store. This store gets no list: the objects come one by one.
    writer.apply_watcher_event(&Event::Init);
    writer.apply_watcher_event(&Event::InitDone);
    let (changes, etcds) = (etcds.changes(), etcds.clone());
    (changes.filter_map(move |changed| future::ready(take_in(&etcds, &unreadable, &mut writer, &changed))), store)
}

/// Puts the latest version of an EtcdCluster into the store, or removes an EtcdCluster that is gone, and returns it.
/// `None`: it cannot be read.
fn take_in(
    etcds: &Cached,
    unreadable: &Unreadable,
    writer: &mut Writer<EtcdCluster>,
    changed: &DynamicObject,
) -> Option<Arc<EtcdCluster>> {
    let there = etcds.get(&changed.namespace().unwrap_or_default(), &changed.name_any());
    let latest = there.as_deref().unwrap_or(changed);
    let etcd: EtcdCluster = match latest.clone().try_parse() {
        Ok(etcd) => etcd,
        Err(error) => {
            tracing::error!(etcd = changed.name_any(), %error, "this EtcdCluster cannot be read, so nothing is done for it");
            unreadable.note(changed, there.is_some());
            return None;
        }
    };
    unreadable.note(changed, false);
    writer.apply_watcher_event(&match there {
        Some(_) => Event::Apply(etcd.clone()),
        None => Event::Delete(etcd.clone()),
    });
    Some(Arc::new(etcd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, watched};
    use controller_support::{Metrics, Scope};
    use kube::runtime::reflector::ObjectRef;
    use serde_json::json;

    #[tokio::test]
    async fn what_is_told_is_in_the_store_and_what_cannot_be_read_stops_nothing_else() {
        let broken = json!({"metadata": {"name": "broken", "namespace": "default"}, "spec": {"replicas": "three"}});
        let good = serde_json::to_value(Story::new(3).etcd()).unwrap();
        let unreadable = Unreadable::new(&Metrics::default(), Scope::default());
        let (changes, store) = typed(&watched(&[broken, good]), unreadable);
        let told: Vec<_> = changes.map(|etcd| etcd.name_any()).take(1).collect().await;
        assert_eq!(told, ["demo-etcd"]);
        assert!(store.get(&ObjectRef::new("demo-etcd").within("default")).is_some());
        store.wait_until_ready().await.unwrap();
    }

    #[tokio::test]
    async fn one_that_is_corrected_or_gone_is_not_shown_any_more() {
        let broken = json!({"metadata": {"name": "demo-etcd", "namespace": "default"}, "spec": {"replicas": "three"}});
        let good = serde_json::to_value(Story::new(3).etcd()).unwrap();
        let object = |value: &serde_json::Value| serde_json::from_value::<DynamicObject>(value.clone()).unwrap();
        let metrics = Metrics::default();
        let unreadable = Unreadable::new(&metrics, Scope::default());
        let (_store, mut writer) = reflector::store();
        for (there, changed, shown) in [
            (vec![broken.clone()], &broken, 1),
            (vec![good.clone()], &good, 0),
            (vec![broken.clone()], &broken, 1),
            (vec![], &broken, 0),
        ] {
            take_in(&watched(&there), &unreadable, &mut writer, &object(changed));
            let text = metrics.text().unwrap();
            let line = "etcdadm_provider_etcd_cluster_unreadable{namespace=\"default\",name=\"demo-etcd\"} 1\n";
            assert_eq!(text.matches(line).count(), shown, "{text}");
        }
        let elsewhere = Scope { namespace: Some("other".to_owned()), ..Scope::default() };
        Unreadable::new(&metrics, elsewhere).note(&object(&broken), true);
        let text = metrics.text().unwrap();
        assert!(!text.contains("_unreadable{"), "another manager shows it: {text}");
    }
}
