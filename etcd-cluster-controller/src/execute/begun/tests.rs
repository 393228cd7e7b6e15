//! What is deleted of what was begun, and in which order.

use super::*;
use crate::execute::fake_api::{deletions, having};
use crate::fixture::{Story, local_machine};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

const NAME: &str = "demo-etcd-3";

fn owner(kind: &str, uid: &str) -> Value {
    json!({"apiVersion": "g/v1", "kind": kind, "name": "x", "uid": uid, "controller": kind == "Machine"})
}

/// An object of the name with these owners, and the plural of its kind.
fn object(kind: &str, plural: &'static str, owners: &[Value]) -> (&'static str, Value) {
    let metadata = json!({"name": NAME, "namespace": "default", "uid": format!("{plural}-uid"), "resourceVersion": "7",
        "ownerReferences": owners});
    (plural, json!({"apiVersion": "g/v1", "kind": kind, "metadata": metadata}))
}

fn config(owners: &[Value]) -> (&'static str, Value) {
    object("EtcdadmConfig", "etcdadmconfigs", owners)
}

fn infrastructure(owners: &[Value]) -> (&'static str, Value) {
    object("LocalMachine", "localmachines", owners)
}

/// The outcome where there are these objects, and the plurals of what is deleted.
async fn discarded(objects: Vec<(&'static str, Value)>) -> (Outcome, Vec<String>) {
    let (client, asked) = having(objects).await;
    let machines = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let (clones, etcd) = (local_machine(), Story::new(3).observation.etcd);
    let place = Place { client: &client, machines: &machines, clones: &clones, etcd: &etcd };
    let outcome = place.discard(NAME).await.unwrap();
    let deleted = deletions(&asked);
    for (plural, request) in &deleted {
        let just_that = request.contains(&format!(r#""uid":"{plural}-uid""#));
        assert!(just_that && request.contains(r#""resourceVersion":"7""#), "{request}");
    }
    (outcome, deleted.into_iter().map(|(plural, _)| plural).collect())
}

#[tokio::test]
async fn the_config_goes_last_as_the_rest_is_found_by_it() {
    let ours = [owner("EtcdCluster", "etcd-uid")];
    let both = discarded(vec![config(&ours), infrastructure(&ours)]).await;
    assert_eq!(both, (Outcome::Done, vec!["localmachines".to_owned(), "etcdadmconfigs".to_owned()]));
    let begun = discarded(vec![config(&ours)]).await;
    assert_eq!(begun, (Outcome::Done, vec!["etcdadmconfigs".to_owned()]), "no more was made");
}

#[tokio::test]
async fn what_a_machine_may_be_made_of_stays() {
    let ours = [owner("EtcdCluster", "etcd-uid")];
    let machine = || object("Machine", "machines", &ours);
    let made = discarded(vec![machine(), config(&ours), infrastructure(&ours)]).await;
    assert_eq!(made, (Outcome::Outdated, vec![]), "the watch does not show the Machine yet");
    let used = [owner("EtcdCluster", "etcd-uid"), owner("Machine", "m")];
    assert_eq!(discarded(vec![config(&used), infrastructure(&used)]).await, (Outcome::Outdated, vec![]));
    let earlier = [owner("EtcdCluster", "earlier")];
    assert_eq!(discarded(vec![config(&earlier), infrastructure(&earlier)]).await, (Outcome::Outdated, vec![]));
    assert_eq!(discarded(vec![config(&[]), infrastructure(&[])]).await, (Outcome::Outdated, vec![]), "a person's");
}
