//! What is deleted of what was begun, and in which order.

use super::*;
use crate::execute::fake_api::{deletions, having, refusal, server};
use crate::fixture::{Story, local_machine};
use controller_support::Error;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::future::ready;

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

async fn discard(client: &Client) -> Result<Outcome> {
    let machines = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let (clones, etcd) = (local_machine(), Story::new(3).observation.etcd);
    let place = Place { client, machines: &machines, clones: &clones, etcd: &etcd };
    place.discard(NAME).await
}

/// The outcome with these objects, and the plurals of what is deleted.
async fn discarded(objects: Vec<(&'static str, Value)>) -> (Outcome, Vec<String>) {
    let (client, asked) = having(objects).await;
    let outcome = discard(&client).await.unwrap();
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
    let used = [owner("EtcdCluster", "etcd-uid"), owner("Machine", "machines-uid")];
    let taken = discarded(vec![machine(), config(&used), infrastructure(&used)]).await;
    assert_eq!(taken, (Outcome::Outdated, vec![]), "nor that it has them");
    let earlier = [owner("EtcdCluster", "earlier")];
    assert_eq!(discarded(vec![config(&earlier), infrastructure(&earlier)]).await, (Outcome::Outdated, vec![]));
    assert_eq!(discarded(vec![config(&[]), infrastructure(&[])]).await, (Outcome::Outdated, vec![]), "a person's");
}

/// The message with these objects, where the name counts as taken.
async fn kept(objects: Vec<(&'static str, Value)>) -> String {
    match discarded(objects).await {
        (Outcome::Blocked(hold), deleted) if hold.reason == reasons::NAME_TAKEN && deleted.is_empty() => hold.message,
        other => panic!("{other:?}"),
    }
}

/// A Machine that was deleted by force is not among the owners: the garbage collector has removed it from them.
#[tokio::test]
async fn what_a_member_may_run_on_stays() {
    let ours = [owner("EtcdCluster", "etcd-uid")];
    let (mut made, mut provisioned) = (config(&ours), infrastructure(&ours));
    made.1["status"]["dataSecretName"] = json!(NAME);
    let told = kept(vec![made.clone(), infrastructure(&ours)]).await;
    assert!(told.starts_with("EtcdadmConfig demo-etcd-3 is left over from a Machine"), "{told}");
    assert!(kept(vec![made]).await.starts_with("EtcdadmConfig"));
    provisioned.1["spec"]["providerID"] = json!("local://demo-etcd-3");
    let told = kept(vec![config(&ours), provisioned]).await;
    assert!(told.starts_with("LocalMachine demo-etcd-3 is left over from a Machine"), "{told}");
}

#[tokio::test]
async fn a_machine_of_somebody_else_is_named() {
    let ours = [owner("EtcdCluster", "etcd-uid")];
    let told = kept(vec![object("Machine", "machines", &[]), config(&ours), infrastructure(&ours)]).await;
    assert_eq!(told, "Machine demo-etcd-3 exists and does not belong to this EtcdCluster; rename or delete it");
}

#[tokio::test]
async fn a_kind_that_is_not_served_does_not_look_like_an_object_that_is_gone() {
    let (client, asked) = server(|_| refusal(404, "")).await;
    assert!(discard(&client).await.unwrap_err().is_not_found());
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|request| request.starts_with("GET ") && request.contains(NAME)), "{asked:?}");
}

#[tokio::test]
async fn infrastructure_is_not_listed() {
    let ours = [owner("EtcdCluster", "etcd-uid")];
    let (client, asked) = having(vec![config(&ours), infrastructure(&ours)]).await;
    assert_eq!(discard(&client).await.unwrap(), Outcome::Done);
    let asked = asked.lock().unwrap();
    let of_it = asked.iter().filter(|request| request.contains("localmachines")).collect::<Vec<_>>();
    assert!(of_it.iter().all(|request| request.contains("/localmachines/demo-etcd-3")), "{of_it:?}");
}

#[tokio::test]
async fn it_goes_only_if_it_is_to_go_by_a_live_look_too() {
    let mut story = Story::with_voters(3, 3);
    story.observation.begun.insert(NAME.to_owned());
    let due = drops_begun(&story.observation, &story.plan());
    let live = async |story: &Story| {
        let looked = look_again(&due, ready(Ok(story.observation.clone()))).await;
        looked.unwrap().unwrap().begun
    };
    assert_eq!(live(&story).await, BTreeSet::from([NAME.to_owned()]));
    story.observation.begun.insert("demo-etcd-4".to_owned());
    assert_eq!(live(&story).await, due, "the other one is put off");
    story.cluster().paused_by = Some("spec.paused".to_owned());
    assert_eq!(live(&story).await, BTreeSet::new());
    let nobody = ready(Err(Error::Internal("somebody has looked".to_owned())));
    assert!(look_again(&BTreeSet::new(), nobody).await.unwrap().is_none(), "there is nothing to look for");
}
