//! A fake API server for tests of writes, and the requests that it receives.

use kube::Client;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The requests so far, each with its body.
pub(super) type Asked = Arc<Mutex<Vec<String>>>;

/// A server that has these objects in a namespace, each with the plural of its kind. No write changes them.
pub(super) async fn having(objects: Vec<(&'static str, Value)>) -> (Client, Asked) {
    server(move |request| {
        let path = path(request);
        let is_list = path.rsplit('/').nth(2) == Some("namespaces");
        if !is_list {
            let found = objects.iter().find(|(plural, _)| path.contains(&format!("/{plural}/")));
            return found.map_or_else(|| refusal(404, "NotFound"), |(_, object)| object.clone());
        }
        let listed = objects.iter().filter(|(plural, _)| path.ends_with(&format!("/{plural}")));
        let items: Vec<&Value> = listed.map(|(_, object)| object).collect();
        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
    })
    .await
}

/// A refusal with this code. If an object does not exist, the API server gives the reason `NotFound`.
pub(super) fn refusal(code: u16, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code, "reason": reason})
}

/// A server that answers every request with `answer`.
pub(super) async fn server(answer: impl Fn(&str) -> Value + Send + 'static) -> (Client, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let asked = Asked::default();
    let asked_there = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = request(&mut stream).await;
            let answered = answer(&request);
            let (code, body) = (answered["code"].as_u64().unwrap_or(200), answered.to_string());
            asked_there.lock().unwrap().push(request);
            let head = format!(
                "HTTP/1.1 {code} Answer\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    });
    (Client::try_from(kube::Config::new(url)).unwrap(), asked)
}

/// The deletions among the requests: the plural of the kind, and the request.
pub(super) fn deletions(asked: &Asked) -> Vec<(String, String)> {
    let asked = asked.lock().unwrap();
    let deletions = asked.iter().filter(|request| request.starts_with("DELETE "));
    deletions.filter_map(|request| Some((path(request).rsplit('/').nth(1)?.to_owned(), request.clone()))).collect()
}

/// The path of a request, without its query.
fn path(request: &str) -> &str {
    let target = request.split(' ').nth(1).unwrap_or_default();
    target.split_once('?').map_or(target, |(path, _)| path)
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
