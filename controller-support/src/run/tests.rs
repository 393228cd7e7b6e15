use super::*;
use futures::stream;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::sync::mpsc;

#[test]
fn the_delay_doubles_up_to_a_limit_and_starts_again_after_a_success() {
    let failures = Failures::default();
    let delays: Vec<u128> = (0..12).map(|_| failures.next("a".to_owned()).as_millis()).collect();
    assert_eq!(&delays[..4], [100, 200, 400, 800]);
    assert_eq!(delays[11], 30_000);
    failures.forget("a");
    assert_eq!(failures.next("a".to_owned()).as_millis(), 100);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_does_not_leave_its_failures_behind() {
    let failures = Failures::default();
    failures.next("gone".to_owned());
    failures.next("gone".to_owned());
    tokio::time::advance(BACKOFF.1 + LIMIT).await;
    assert_eq!(failures.next("gone".to_owned()).as_millis(), 400, "one that fails slowly is still known");
    tokio::time::advance(FAILURE_TTL).await;
    assert_eq!(failures.next("gone".to_owned()).as_millis(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_does_not_keep_its_object_for_ever() {
    let error = limited(std::future::pending::<Result<(), Error>>()).await.unwrap_err();
    assert_eq!(error.to_string(), "gave up after 180 s: the API server does not answer");
    assert_eq!(limited(async { Ok(1) }).await.unwrap(), 1);
}

/// A controller whose first list does not arrive, because the API server accepts connections and never answers.
async fn waiting(shared: &Shared) {
    let secrets = kube::Api::<Secret>::all(shared.client.clone());
    let controller = Controller::new(secrets, kube::runtime::watcher::Config::default());
    run_controller("test", controller, shared, Arc::new(()), |_, _| async { Ok(Action::await_change()) }, ()).await;
}

#[tokio::test]
async fn it_stops_also_before_the_first_list_has_come() {
    // Accepts connections, and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (stop, shutdown) = Shutdown::new();
    let shared = Shared::new(Client::try_from(kube::Config::new(url)).unwrap(), shutdown);
    let after_a_connection = async {
        listener.accept().await.unwrap();
        stop.send(true).unwrap();
        // Without the stop, it would wait forever.
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    tokio::select! {
        () = waiting(&shared) => {}
        () = after_a_connection => panic!("it does not stop"),
    }
}

#[tokio::test]
async fn objects_of_another_manager_are_passed_over() {
    let secret = |name: &str, filter: &str| -> Secret {
        let labels = json!({api::names::WATCH_FILTER_LABEL: filter});
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "n", "labels": labels}})).unwrap()
    };
    let secrets = [secret("theirs", "green"), secret("ours", "blue")];
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    secrets.iter().for_each(|secret| writer.apply_watcher_event(&Event::InitApply(secret.clone())));
    writer.apply_watcher_event(&Event::InitDone);
    let changes = stream::iter(secrets.map(Arc::new)).chain(stream::pending());
    let scope = Scope { watch_filter: Some("blue".to_owned()), ..Scope::default() };
    let (_stop, shutdown) = Shutdown::new();
    let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let shared = Shared::within(scope, client, shutdown);
    let (sender, mut reconciled) = mpsc::unbounded_channel();
    let reconcile = move |secret: Arc<Secret>, _| {
        sender.send(secret.name_any()).unwrap();
        async { Ok(Action::await_change()) }
    };
    let told = async {
        let first = reconciled.recv().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        (first, reconciled.try_recv().ok())
    };
    tokio::select! {
        () = run_controller("test", Controller::for_shared_stream(changes, store), &shared, Arc::new(()), reconcile, ()) => {
            panic!("it ends")
        }
        told = told => assert_eq!(told, (Some("ours".to_owned()), None)),
    }
}

#[tokio::test]
async fn it_ends_when_a_version_is_no_longer_served() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (_stop, shutdown) = Shutdown::new();
    let shared = Shared::new(Client::try_from(kube::Config::new(url)).unwrap(), shutdown);
    let upgraded = async {
        listener.accept().await.unwrap();
        let resource = kube::discovery::ApiResource::erase::<Secret>(&());
        shared.kinds.lose(&resource).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    tokio::select! {
        () = waiting(&shared) => {}
        () = upgraded => panic!("it goes on with a version that is not served"),
    }
    assert!(!shared.shutdown.is_requested(), "it is started again");
}
