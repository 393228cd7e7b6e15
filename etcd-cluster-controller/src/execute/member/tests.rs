//! What is found in place of an object that was to be made.

use super::*;
use crate::fixture::Story;
use kube::Client;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An API server that gives one object for every request, and the requests that it got.
async fn server(object: &Value) -> (Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (asked, body) = (Arc::<Mutex<Vec<String>>>::default(), object.to_string());
    let asked_there = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = request(&mut stream).await;
            asked_there.lock().unwrap().push(request);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    });
    (Client::try_from(kube::Config::new(url)).unwrap(), asked)
}

/// One request, with its body.
async fn request(stream: &mut TcpStream) -> String {
    let mut request = String::new();
    loop {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).await.unwrap();
        request.push_str(&String::from_utf8_lossy(&part[..length]));
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let wanted = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if length == 0 || body.len() >= wanted.unwrap_or(0) {
            return request;
        }
    }
}

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
    let (client, asked) = server(&there).await;
    let api = apply::dynamic(&client, &clones, "default");
    let outcome = existing(&api, etcd, &api, &clones, &wanted).await.unwrap();
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

#[test]
fn what_a_machine_has_used_is_not_used_again() {
    let owner = |kind: &str, uid: &str, controller: bool| json!({"apiVersion": "g/v1", "kind": kind, "name": "x", "uid": uid, "controller": controller});
    let whose = |metadata| whose(&serde_json::from_value(metadata).unwrap(), Some("etcd-uid"));
    let ours = owner("EtcdCluster", "etcd-uid", false);
    assert_eq!(whose(json!({"ownerReferences": [ours]})), Whose::Ours);
    let used = whose(json!({"ownerReferences": [ours, owner("Machine", "m", true)]}));
    assert!(matches!(used, Whose::Machines(machine) if machine.uid == "m"));
    let leaving = json!({"ownerReferences": [ours], "deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(whose(leaving), Whose::Leaving);
    assert_eq!(whose(json!({"ownerReferences": [owner("EtcdCluster", "earlier", false)]})), Whose::Leaving);
    assert_eq!(whose(json!({})), Whose::Others);
}
