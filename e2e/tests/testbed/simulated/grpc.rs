//! Requests by gRPC.

use anyhow::Result;
use e2e::tls::{Authority, Identity};
use etcd_client::{Certificate, Client, ConnectOptions, Error, TlsOptions};
use std::net::Ipv4Addr;

/// No member has this ID.
const NOBODY: u64 = 12_345;

/// The answers to a sequence of requests: the relevant part of an answer, or the code and message of a refusal.
type Answers = Vec<(&'static str, Result<String, String>)>;

/// A client of the member at an address.
pub(super) async fn client(address: Ipv4Addr, authority: &Authority, identity: &Identity) -> Result<Client> {
    let tls = TlsOptions::new()
        .domain_name(address.to_string())
        .ca_certificate(Certificate::from_pem(&authority.certificate))
        .identity(etcd_client::Identity::from_pem(&identity.certificate, &identity.key));
    let options = ConnectOptions::new().with_tls(tls);
    Ok(Client::connect([format!("https://{address}:2379")], Some(options)).await?)
}

/// Requests that change nothing.
pub(super) async fn reads(address: Ipv4Addr, authority: &Authority, identity: &Identity) -> Result<Answers> {
    let mut client = client(address, authority, identity).await?;
    let status = client.status().await.map(|status| {
        let (own, leader) = (status.header().map(|header| header.member_id()), status.leader());
        format!("{} {} {}", status.version(), status.is_learner(), Some(leader) == own)
    });
    let list = client.member_list().await.map(|list| {
        let learners: Vec<bool> = list.members().iter().map(|member| member.is_learner()).collect();
        format!("{} of {}", learners.iter().filter(|learner| **learner).count(), learners.len())
    });
    let read = client.get("etcd-cluster-controller", None).await.map(|read| read.count().to_string());
    Ok(vec![("status", said(status)), ("list", said(list)), ("read", said(read))])
}

/// Requests to the voter for changes. Only the last one succeeds: it removes the learner.
pub(super) async fn changes(address: Ipv4Addr, authority: &Authority, identity: &Identity) -> Result<Answers> {
    let mut client = client(address, authority, identity).await?;
    let list = client.member_list().await?;
    let id =
        |learner: bool| list.members().iter().find(|member| member.is_learner() == learner).map(|found| found.id());
    let (voter, learner) = (id(false).unwrap_or_default(), id(true).unwrap_or_default());
    let to_nobody = client.move_leader(NOBODY).await.map(|_| String::new());
    let to_learner = client.move_leader(learner).await.map(|_| String::new());
    let nobody = client.member_remove(NOBODY).await.map(|_| String::new());
    let only_voter = client.member_remove(voter).await.map(|_| String::new());
    let removed = client.member_remove(learner).await.map(|left| left.members().len().to_string());
    Ok(vec![
        ("lead: nobody", said(to_nobody)),
        ("lead: the learner", said(to_learner)),
        ("remove: nobody", said(nobody)),
        ("remove: the only voter", said(only_voter)),
        ("remove: the learner", said(removed)),
    ])
}

fn said(answer: Result<String, Error>) -> Result<String, String> {
    answer.map_err(|error| match error {
        Error::GRpcStatus(status) => format!("{:?}: {}", status.code(), status.message()),
        other => other.to_string(),
    })
}
