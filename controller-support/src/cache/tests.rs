use super::*;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::core::Status;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

fn follow(events: impl Stream<Item = Watch> + Send + 'static) -> Cached {
    let (cached, following) = Cached::follow(&ApiResource::erase::<Secret>(&()), events, None);
    tokio::spawn(following);
    cached
}

/// A watch whose events the test sends one by one.
struct Hand {
    events: mpsc::UnboundedSender<Watch>,
    cached: Cached,
}

impl Hand {
    fn new() -> Self {
        let (events, receiver) = mpsc::unbounded_channel();
        let events_read = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        Self { events, cached: follow(events_read) }
    }

    async fn give(&self, event: Watch) {
        self.events.send(event).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn list(&self, objects: impl IntoIterator<Item = DynamicObject>) {
        self.give(Ok(watcher::Event::Init)).await;
        for object in objects {
            self.give(Ok(watcher::Event::InitApply(object))).await;
        }
        self.give(Ok(watcher::Event::InitDone)).await;
    }

    async fn refuse(&self, code: u16) {
        let status = Status { code, message: format!("answer {code}"), ..Status::default() };
        self.give(Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))).await;
    }

    fn owned_by(&self, uid: &str) -> Vec<String> {
        self.cached.by_index(&BY_CONTROLLER_UID, "default", uid).iter().map(|object| object.name_any()).collect()
    }
}

fn object(name: &str, controller: &str) -> DynamicObject {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": [
        {"apiVersion": "g/v1", "kind": "Kind", "name": "x", "uid": controller, "controller": true},
        {"apiVersion": "g/v1", "kind": "Kind", "name": "y", "uid": "no controller"}]}}))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn everybody_who_waits_for_the_first_list_is_woken_by_it() {
    let list = Duration::from_secs(1);
    let events = stream::once(async move {
        tokio::time::sleep(list).await;
        Ok(watcher::Event::InitDone)
    });
    let secrets = follow(events.chain(stream::pending()));
    let begun = Instant::now();
    let waiting = [(); 3].map(|()| {
        let secrets = secrets.clone();
        tokio::spawn(async move { secrets.ready().await })
    });
    for one in waiting {
        assert!(one.await.unwrap());
    }
    assert!(begun.elapsed() < FIRST_LIST, "somebody has waited for {:?}", begun.elapsed());
    assert!(secrets.ready().await, "later too");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_come_is_not_waited_for_for_ever() {
    let secrets = follow(stream::pending());
    assert!(!secrets.ready().await);
    let error = secrets.ensure_ready().await.unwrap_err();
    assert!(matches!(error, Error::NotReady(_)), "nobody has refused anything: {error:?}");
    assert_eq!(error.to_string(), "secrets are not listed yet: the API server has not answered");
    let hand = Hand::new();
    hand.refuse(503).await;
    let error = hand.cached.ensure_ready().await.unwrap_err();
    assert!(matches!(error, Error::NotReady(_)), "an outage is not a refusal: {error:?}");
    assert_eq!(error.to_string(), "secrets are not listed yet: answer 503");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_is_not_waited_for_and_says_why() {
    let hand = Hand::new();
    let begun = Instant::now();
    hand.refuse(403).await;
    let error = hand.cached.ensure_ready().await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert_eq!(error.to_string(), "secrets cannot be listed: answer 403");
    assert!(begun.elapsed() < Duration::from_secs(1), "it has waited for {:?}", begun.elapsed());
    hand.list([]).await;
    assert!(hand.cached.ready().await, "permissions have been given");
    assert_eq!(hand.cached.failure(), None);
    hand.refuse(503).await;
    assert!(hand.cached.ready().await, "an outage does not make what is known unknown");
    assert_eq!(hand.cached.failure().as_deref(), Some("answer 503"));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_known_to_fail_is_not_waited_for() {
    let hand = Hand::new();
    let waiting = tokio::spawn({
        let cached = hand.cached.clone();
        async move { cached.ready().await }
    });
    let begun = Instant::now();
    for _ in 0..3 {
        // As with a conversion webhook that is down.
        hand.refuse(500).await;
        assert!(!hand.cached.ready().await);
    }
    assert!(!waiting.await.unwrap(), "whoever waited before is told as well");
    assert!(begun.elapsed() < Duration::from_secs(1), "it has waited for {:?}", begun.elapsed());
    hand.give(Ok(watcher::Event::Init)).await;
    assert!(!hand.cached.ready().await, "a list that has begun may fail again");
    hand.list([]).await;
    assert!(hand.cached.ready().await);
}

#[tokio::test(start_paused = true)]
async fn an_index_follows_the_objects() {
    let hand = Hand::new();
    hand.list([object("a", "1"), object("b", "1"), object("c", "2")]).await;
    assert_eq!(hand.owned_by("1"), ["a", "b"]);
    assert_eq!(hand.owned_by("no controller"), [""; 0]);
    hand.give(Ok(watcher::Event::Apply(object("b", "2")))).await;
    assert_eq!((hand.owned_by("1"), hand.owned_by("2")), (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]));
    hand.give(Ok(watcher::Event::Delete(object("c", "2")))).await;
    assert_eq!(hand.owned_by("2"), ["b"]);
    hand.list([object("d", "1")]).await;
    assert_eq!((hand.owned_by("1"), hand.owned_by("2")), (vec!["d".to_owned()], vec![]));
    assert!(hand.cached.by_index(&BY_CONTROLLER_UID, "other", "1").is_empty());
    assert!(hand.cached.get("default", "d").is_some() && hand.cached.get("default", "a").is_none());
    assert_eq!(hand.cached.in_namespace("default").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_far_behind_still_hears_of_every_deletion() {
    let hand = Hand::new();
    hand.list([object("goes", "1")]).await;
    let mut changes = Box::pin(hand.cached.changes());
    hand.give(Ok(watcher::Event::Delete(object("goes", "1")))).await;
    for _ in 0..5000 {
        hand.events.send(Ok(watcher::Event::Apply(object("busy", "1")))).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut told = Vec::new();
    while let Ok(Some(object)) = tokio::time::timeout(Duration::from_secs(1), changes.next()).await {
        told.push(object.name_any());
    }
    // Once because it existed, and once because it is gone.
    assert_eq!(told.iter().filter(|name| *name == "goes").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_has_gone_while_the_watch_was_down_is_told() {
    let hand = Hand::new();
    hand.list([object("a", "1"), object("b", "1")]).await;
    let changes = hand.cached.changes();
    hand.list([object("b", "1")]).await;
    let mut told: Vec<String> = changes.take(4).map(|object| object.name_any()).collect().await;
    // A list has no order.
    told[..2].sort();
    assert_eq!(told, ["a", "b", "b", "a"]);
}

fn client() -> Client {
    let url = "http://127.0.0.1:1".parse().unwrap();
    Client::try_from(kube::Config::new(url)).unwrap()
}

fn kinds() -> Kinds {
    Kinds::new(client())
}

/// Where a watch of Secrets is registered.
fn known(kinds: &Kinds) -> Known {
    Known { kinds: kinds.clone(), running: Arc::default(), watched: (ApiResource::erase::<Secret>(&()), None) }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_never_served_to_the_watch_is_forgotten_too() {
    let (kinds, secrets) = (kinds(), ApiResource::erase::<Secret>(&()));
    kinds.know(&secrets).await;
    let status = Status { code: 404, ..Status::default() };
    let gone = Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))));
    let lost = kinds.lost();
    let (_, following) = Cached::follow(&secrets, stream::iter([gone]), Some(known(&kinds)));
    following.await;
    assert!(!kinds.knows(&secrets).await, "every later look-up would answer the version that is not served");
    let told = tokio::time::timeout(Duration::from_secs(1), lost).await;
    assert!(told.is_err(), "no controller has begun with it");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_no_longer_served_is_forgotten_and_no_longer_asked_for() {
    let kinds = kinds();
    let (events, receiver) = mpsc::unbounded_channel();
    let gone = || {
        let status = Status { code: 404, ..Status::default() };
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(Box::new(status))))
    };
    let events_read = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let known = known(&kinds);
    let (running, watched) = (known.running.clone(), known.watched.clone());
    let (cached, following) = Cached::follow(&watched.0, events_read, Some(known));
    running.lock().unwrap().insert(watched, cached.clone());
    let task = tokio::spawn(following);
    let told_of = async |event: Watch| {
        let lost = kinds.lost();
        events.send(event).unwrap();
        tokio::time::timeout(Duration::from_secs(1), lost).await.is_ok()
    };
    assert!(!told_of(gone()).await, "it has never been served");
    let error = cached.ensure_ready().await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "waiting does not help: {error:?}");
    assert_eq!(running.lock().unwrap().len(), 1, "others wait for it");
    assert!(!told_of(Ok(watcher::Event::Init)).await && !told_of(Ok(watcher::Event::InitDone)).await);
    assert!(told_of(gone()).await, "nobody is told");
    let error = cached.ensure_ready().await.unwrap_err();
    assert!(matches!(error, Error::NotReady(_)), "it is over in a moment, and nobody has refused anything: {error:?}");
    let ended = tokio::time::timeout(Duration::from_secs(1), task).await;
    assert!(ended.is_ok() && events.is_closed(), "it is asked for as long as the process lives");
    assert!(running.lock().unwrap().is_empty(), "whoever begins again gets the watch that has ended");
}
