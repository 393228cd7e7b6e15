//! The client of the API server that all controllers of a process share.

mod verb;

use crate::metrics::{Metrics, RequestLabels};
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use thiserror::Error;
use tokio::time::timeout;
use tower::{BoxError, Service, layer::layer_fn, service_fn};

/// How long the API server may take to begin its answer. kube waits for the answer to a watch without a limit. If the
/// connection died silently at the wrong moment, the watch would report nothing more, and its copy would be stale for
/// good.
const LIMITS: Limits = Limits { watch: Duration::from_secs(30), other: Duration::from_secs(65) };

/// Takes the place of a controller's name in requests that controllers share, such as watches, or that another part of
/// the process makes.
pub const SHARED: &str = "shared";

/// Name of the controller that makes a request. It is attached to the request, because a client sends requests from a
/// separate task.
#[derive(Clone, Copy)]
struct Asks(&'static str);

#[derive(Clone, Copy)]
struct Limits {
    /// The answer to a watch begins at once, or as soon as the API server has started its own watch of the kind.
    watch: Duration,
    /// The API server itself gives up after a minute.
    other: Duration,
}

/// No answer has begun in time. The request may have been carried out.
#[derive(Debug, Error)]
#[error("the API server has not begun to answer within {} s", .0.as_secs())]
struct NotAnswered(Duration);

/// A client whose requests always end, with the beginning of an answer or with an error. It counts them.
///
/// # Errors
/// When the configuration cannot be used.
pub fn client(config: Config, metrics: &Arc<Metrics>) -> kube::Result<Client> {
    client_with(config, metrics, LIMITS)
}

/// The same client, with its requests counted for a controller.
#[must_use]
pub fn of_controller(client: &Client, controller: &'static str) -> Client {
    let inner = client.clone();
    let ask = move |mut request: Request<Body>| {
        request.extensions_mut().insert(Asks(controller));
        let inner = inner.clone();
        async move { inner.send(request).await }
    };
    Client::new(service_fn(ask), client.default_namespace())
}

fn client_with(config: Config, metrics: &Arc<Metrics>, limits: Limits) -> kube::Result<Client> {
    let watched = layer_fn(|inner| Watched { inner, limits, metrics: metrics.clone() });
    Ok(ClientBuilder::try_from(config)?.with_layer(&watched).build())
}

/// Gives up requests that are not answered in time, and counts all requests.
#[derive(Clone)]
struct Watched<S> {
    inner: S,
    limits: Limits,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for Watched<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb::verb(request.method(), request.uri());
        let controller = request.extensions().get::<Asks>().map_or(SHARED, |asks| asks.0);
        let limit = if verb == verb::WATCH { self.limits.watch } else { self.limits.other };
        let (answer, metrics) = (self.inner.call(request), self.metrics.clone());
        Box::pin(async move {
            let answer = match timeout(limit, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NotAnswered(limit).into()),
            };
            // 0: there is no answer.
            let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            metrics.requests.get_or_create(&RequestLabels { controller, verb, code }).inc();
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Caches;
    use crate::kinds::Kinds;
    use crate::scope::Scope;
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::Api;
    use kube::discovery::ApiResource;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    const QUICK: Limits = Limits { watch: Duration::from_millis(300), other: Duration::from_millis(300) };

    /// Serves one request on each connection. Its first line decides what the answer is, or that there is none.
    async fn server(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Config {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer.clone()));
            }
        });
        Config::new(url.parse().unwrap())
    }

    async fn serve(mut stream: TcpStream, answer: Arc<impl Fn(&str) -> Option<String>>) {
        let mut request = vec![0; 4096];
        let read = stream.read(&mut request).await.unwrap_or(0);
        let text = String::from_utf8_lossy(&request[..read]).into_owned();
        match answer(text.lines().next().unwrap_or_default()) {
            Some(body) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(format!("{head}{body}\n").as_bytes()).await;
            }
            None => std::future::pending().await,
        }
    }

    #[tokio::test]
    async fn a_request_without_an_answer_ends_with_an_error() {
        let (config, metrics) = (server(|_| None).await, Arc::<Metrics>::default());
        let secrets: Api<Secret> = Api::namespaced(client_with(config, &metrics, QUICK).unwrap(), "default");
        let error = tokio::time::timeout(Duration::from_secs(20), secrets.get("demo")).await.expect("it hangs");
        let said = format!("{:?}", error.unwrap_err());
        assert!(said.contains("NotAnswered"), "{said}");
        assert_eq!(count(&metrics, SHARED, "get", 0), 1);
    }

    fn count(metrics: &Metrics, controller: &'static str, verb: &'static str, code: u16) -> u64 {
        metrics.requests.get_or_create(&RequestLabels { controller, verb, code }).get()
    }

    /// The answers are the same as for the shared client.
    #[tokio::test]
    async fn requests_of_a_controller_are_told_from_those_of_others() {
        let config = server(|line| {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo"}});
            (!line.contains("late")).then(|| secret.to_string())
        })
        .await;
        let metrics = Arc::<Metrics>::default();
        let everybodys = client_with(config, &metrics, QUICK).unwrap();
        let secrets = |client: &Client| -> Api<Secret> { Api::namespaced(client.clone(), "default") };
        let (ours, others) = (of_controller(&everybodys, "ours"), of_controller(&everybodys, "others"));
        for _ in 0..3 {
            assert_eq!(secrets(&ours).get("demo").await.unwrap().metadata.name.as_deref(), Some("demo"));
        }
        secrets(&others).get("demo").await.unwrap();
        secrets(&everybodys).get("demo").await.unwrap();
        let asked = |code| ["ours", "others", SHARED].map(|controller| count(&metrics, controller, "get", code));
        assert_eq!(asked(200), [3, 1, 1]);
        let late = [secrets(&ours).get("late").await, secrets(&everybodys).get("late").await];
        let [told_ours, told_everybody] = late.map(|answer| format!("{:?}", answer.unwrap_err()));
        assert_eq!(told_ours, told_everybody);
        assert_eq!(asked(0), [1, 0, 1]);
    }

    /// As if the API server died while a watch is started: without a limit, the watch would report nothing more.
    #[tokio::test]
    async fn a_watch_that_is_not_answered_is_started_again() {
        let watches = Arc::new(AtomicUsize::new(0));
        let begun = watches.clone();
        let config = server(move |line| {
            if !line.contains("watch=true") {
                let list = json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "1"}, "items": []});
                return Some(list.to_string());
            }
            let secret = json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "late", "namespace": "default", "uid": "1", "resourceVersion": "2"}});
            let event = json!({"type": "ADDED", "object": secret}).to_string();
            (begun.fetch_add(1, Ordering::Relaxed) > 0).then_some(event)
        })
        .await;
        let metrics = Arc::default();
        let client = client_with(config, &metrics, QUICK).unwrap();
        let caches = Caches::new(client.clone(), Kinds::new(client), Scope::default());
        let cached = caches.watch(&ApiResource::erase::<Secret>(&()), None);
        let seen = async {
            while cached.get("default", "late").is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the watch shows nothing more");
        assert!(watches.load(Ordering::Relaxed) > 1);
        let asked = [("list", 200), ("watch", 0), ("watch", 200)];
        assert!(asked.into_iter().all(|(verb, code)| count(&metrics, SHARED, verb, code) > 0));
    }
}
