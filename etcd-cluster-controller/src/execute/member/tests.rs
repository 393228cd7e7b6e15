//! Existing objects with the name of an object that is to be created.

use super::*;
use crate::execute::fake_api::{deletions, having, server};
use crate::fixture::Story;
use crate::observation::Membership;
use kube::core::GroupVersionKind;

fn parts<'a>(etcd: &'a EtcdCluster, clones: &'a ApiResource) -> MachineParts<'a> {
    let (cluster, name) = ("demo", "demo-etcd-0");
    MachineParts { etcd, cluster, name, infrastructure: clones, failure_domain: None, replaces: None }
}

/// The outcome for a clone that is left over, and the methods of the requests after the one that read it.
async fn left_over(change: impl FnOnce(&mut Value)) -> (Outcome, Vec<String>) {
    let mut story = Story::new(3);
    let Template::Found { template, clones } = story.observation.template.clone() else { panic!("no template") };
    let etcd = story.etcd();
    let parts = parts(etcd, &clones);
    let wanted = build::infrastructure(&parts, &template).unwrap();
    let mut there = serde_json::to_value(&wanted).unwrap();
    there["metadata"]["uid"] = json!("clone");
    there["metadata"]["resourceVersion"] = json!("7");
    change(&mut there);
    let (client, asked) = server(move |_| there.clone()).await;
    let place = Place { client: &client, machines: &clones, clones: &clones, etcd };
    let outcome = existing(&place, &clones, &wanted).await.unwrap();
    let asked = asked.lock().unwrap().clone();
    for deletion in asked.iter().filter(|request| request.starts_with("DELETE")) {
        assert!(deletion.contains(r#""uid":"clone""#) && deletion.contains(r#""resourceVersion":"7""#), "{deletion}");
    }
    (outcome, asked.iter().skip(1).filter_map(|request| request.split(' ').next()).map(str::to_owned).collect())
}

#[tokio::test]
async fn what_is_left_over_is_used_or_deleted_or_left_alone() {
    assert_eq!(left_over(|_| {}).await, (Outcome::Done, vec![]));
    let another = |there: &mut Value| there["spec"]["size"] = json!("small");
    assert_eq!(left_over(another).await, (Outcome::Outdated, vec!["DELETE".to_owned()]), "just that version");
    let leaving = |there: &mut Value| there["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(left_over(leaving).await, (Outcome::Outdated, vec![]));
    let (others, asked) = left_over(|there| there["metadata"]["ownerReferences"] = json!([])).await;
    assert!(matches!(&others, Outcome::Blocked(hold) if hold.reason == reasons::NAME_TAKEN), "{others:?}");
    assert!(asked.is_empty(), "what is somebody else's stays: {asked:?}");
    let (used, asked) = left_over(|there| there["status"]["initialization"]["provisioned"] = json!(true)).await;
    assert!(matches!(&used, Outcome::Blocked(hold) if hold.reason == reasons::NAME_TAKEN), "{used:?}");
    assert!(asked.is_empty(), "a member may run on it: {asked:?}");
}

/// The outcome for a leftover config that no longer matches the spec, beside its infrastructure machine and this
/// Machine; and the plurals of what is deleted.
async fn overtaken(machine: Option<Value>) -> (Outcome, Vec<String>) {
    let mut story = Story::new(3);
    let Template::Found { template, clones } = story.observation.template.clone() else { panic!("no template") };
    let left = |object: &DynamicObject| {
        let mut left = serde_json::to_value(object).unwrap();
        left["metadata"]["uid"] = json!("left");
        left["metadata"]["resourceVersion"] = json!("7");
        left
    };
    let (config, clone) = {
        let parts = parts(&story.observation.etcd, &clones);
        let config = to_dynamic(&build::config(&parts)).unwrap();
        (left(&config), left(&build::infrastructure(&parts, &template).unwrap()))
    };
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.1");
    let wanted = to_dynamic(&build::config(&parts(&story.observation.etcd, &clones))).unwrap();
    let machine = machine.map(|machine| ("machines", machine));
    let objects = [("etcdadmconfigs", config), ("localmachines", clone)].into_iter().chain(machine);
    let (client, asked) = having(objects.collect()).await;
    let machines = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let place = Place { client: &client, machines: &machines, clones: &clones, etcd: story.etcd() };
    let outcome = existing(&place, &configs(), &wanted).await.unwrap();
    (outcome, deletions(&asked).into_iter().map(|(plural, _)| plural).collect())
}

#[tokio::test]
async fn a_config_that_is_left_over_does_not_go_without_its_infrastructure() {
    let both = ["localmachines", "etcdadmconfigs"].map(str::to_owned).to_vec();
    assert_eq!(overtaken(None).await, (Outcome::Outdated, both));
    // The step is not tried again and again: it is reported to a person.
    let (outcome, deleted) = overtaken(Some(json!({"metadata": {"name": "demo-etcd-0"}}))).await;
    let Outcome::Blocked(hold) = &outcome else { panic!("{outcome:?}") };
    assert!(hold.reason == reasons::NAME_TAKEN && hold.message.starts_with("Machine demo-etcd-0 exists"), "{hold:?}");
    assert!(deleted.is_empty(), "{deleted:?}");
}

#[tokio::test]
async fn the_number_of_what_may_be_a_members_is_not_given_to_another_machine() {
    let given = async |story: &Story, status: Value, infrastructure: Value| {
        let Template::Found { clones, .. } = &story.observation.template else { panic!("no template") };
        let etcd = story.observation.etcd.as_ref();
        let config = to_dynamic(&build::config(&parts(etcd, clones))).unwrap();
        let mut config = serde_json::to_value(&config).unwrap();
        config["status"] = status;
        let mut clone = config.clone();
        clone["spec"] = infrastructure;
        clone["status"] = Value::Null;
        let (client, _) = having(vec![("etcdadmconfigs", config), ("localmachines", clone)]).await;
        let place = Place { client: &client, machines: clones, clones, etcd };
        begun(&place, &story.observation, &[], 1).await.unwrap()
    };
    let mut story = Story::with_voters(3, 1);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "0");
    assert_eq!(given(&story, json!({}), json!({})).await, None, "etcd has that member");
    story.observation.membership = Membership::NotAsked;
    assert_eq!(given(&story, json!({}), json!({})).await, None, "the status has it");
    story.etcd().status = None;
    assert_eq!(given(&story, json!({}), json!({})).await, Some(0));
    let made = json!({"dataSecretName": "demo-etcd-0"});
    assert_eq!(given(&story, made, json!({})).await, None, "a Machine has had it");
    let provided = json!({"providerID": "local:////default/demo-etcd-0"});
    assert_eq!(
        given(&story, json!({}), provided).await,
        None,
        "its bootstrap Secret is gone, and its machine is there"
    );
}

#[test]
fn a_missing_permission_is_not_a_fault_of_the_spec() {
    let reason = |code| {
        let answer = kube::core::Status::failure("no", "No").with_code(code);
        reason_of(&kube::Error::Api(Box::new(answer)), reasons::INVALID_SPEC)
    };
    assert_eq!(reason(403), reasons::REFUSED);
    assert_eq!(reason(422), reasons::INVALID_SPEC);
}

#[test]
fn what_is_left_over_is_used_only_if_it_would_be_made_the_same() {
    let mut story = Story::new(3);
    let Template::Found { template, clones } = story.observation.template.clone() else { panic!("no template") };
    let clone = |story: &Story, template: &DynamicObject| {
        let parts = parts(&story.observation.etcd, &clones);
        let config = to_dynamic(&build::config(&parts)).unwrap();
        (build::infrastructure(&parts, template).unwrap(), config)
    };
    let (machine, config) = clone(&story, &template);
    // The provider fills in what the template leaves out.
    let mut there = machine.clone();
    there.data["spec"]["providerID"] = json!("local://demo-etcd-0");
    assert!(is_as_wanted(&story.observation.etcd, &there, &machine));
    assert!(is_as_wanted(&story.observation.etcd, &config, &config));
    let mut again = template.as_ref().clone();
    again.data["spec"]["template"]["spec"]["size"] = json!("small");
    let (smaller, _) = clone(&story, &again);
    assert!(!is_as_wanted(&story.observation.etcd, &there, &smaller), "the template was made again");
    story.etcd().spec.infrastructure_template.name = "other".to_owned();
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.1");
    let (other, newer) = clone(&story, &template);
    assert!(!is_as_wanted(&story.observation.etcd, &there, &other));
    assert!(!is_as_wanted(&story.observation.etcd, &config, &newer));
}
