//! Requests to the cluster's members, through any member that answers.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, Identity, MemberAddOptions, ResponseHeader, StatusResponse, TlsOptions,
};
use tokio::time::{Instant, timeout};

use super::{Failure, Member, Membership};
use crate::endpoint::Endpoint;
use at_peer_url::AtPeerUrl;

mod at_peer_url;

/// Time for an endpoint to accept a connection. After it, the next endpoint is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd itself gives up on a request after seven seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// How long to wait for the first membership change. If two changes arrive at the same time, raft drops the second
/// ("ignoring conf change"), and etcd never answers it. The next list shows whether a change was only slow. A change
/// takes etcd some milliseconds, or some hundred on a slow disk.
const CHANGE_PATIENCE: Duration = Duration::from_secs(1);
/// A read needs a leader and nothing else. If this endpoint knows no leader, the next one may.
const READ_TIMEOUT: Duration = Duration::from_secs(4);

/// For a question to one member about itself.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The cluster behind some endpoints. Each request goes to one endpoint, so that it is known which member carried it
/// out.
///
/// At any time, even between two requests, an address may pass to a member of another cluster that trusts the same
/// authority. So each request that follows from a list takes that list, and an answer from another cluster is a
/// failure.
pub struct Cluster {
    ca: String,
    certificate: String,
    key: String,
    /// Its ID, if it is known.
    id: Option<u64>,
    /// In the order in which they are tried; the one that answered last comes first.
    endpoints: Vec<Endpoint>,
    /// Connections are kept: the handshake costs more than the request.
    clients: HashMap<String, Client>,
    /// How long to wait for the next change.
    patience: Duration,
}

/// How far a member has got.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Its ID.
    pub member_id: u64,
    /// ID of the leader that it follows; 0 if it knows none.
    pub leader: u64,
    /// The last entry of the log that it has applied.
    pub applied: u64,
}

impl Cluster {
    /// Does not connect yet. The certificates are PEM, and the client certificate must be valid for etcd's clients.
    pub fn new(endpoints: Vec<Endpoint>, ca: String, certificate: String, key: String) -> Self {
        Self { ca, certificate, key, id: None, endpoints, clients: HashMap::new(), patience: CHANGE_PATIENCE }
    }

    /// Restricts the lists to the cluster with this ID: a member of another cluster that trusts the same authority may
    /// answer at an address that has passed to it.
    #[must_use]
    pub fn of(self, id: Option<u64>) -> Self {
        Self { id, ..self }
    }

    /// The member with this peer URL, asked there with the same certificates.
    pub fn at_peer_url(&self, peer: Endpoint) -> AtPeerUrl {
        AtPeerUrl { peer, ca: self.ca.clone(), identity: format!("{}\n{}", self.certificate, self.key) }
    }

    /// Checks whether a linearizable read through the first endpoint succeeds. Unlike `/health`, it ignores alarms: a
    /// cluster that is out of space still accepts members.
    ///
    /// # Errors
    /// Why not.
    pub async fn check(&mut self) -> Result<(), Failure> {
        let endpoint = self.first()?;
        self.request(&endpoint, CHECK_TIMEOUT, async |client| client.get("etcdadm", None).await.map(|_| ())).await
    }

    /// The versions that a listed member reports at one of its client URLs: the version of its program, and the storage
    /// version of the cluster, which no member is older than. The storage version is empty before etcd 3.6. A member
    /// that serves no clients tells the first one at its peer URL: it may vote for long, and without its version no
    /// other member could take its place. `None` if it answers at none of its URLs. An answer from another member or
    /// another cluster does not count.
    pub async fn versions(&mut self, listed: &Membership, member: &Member) -> Option<(String, String)> {
        for endpoint in member.client_urls.iter().filter_map(|url| url.parse::<Endpoint>().ok()) {
            let Ok(status) = self.status(&endpoint, listed).await else { continue };
            if member_id(status.header()) == member.id {
                return Some((status.version().to_owned(), status.storage_version().to_owned()));
            }
        }
        for peer in member.peer_urls.iter().filter_map(|url| url.parse::<Endpoint>().ok()) {
            if let Some(version) = self.at_peer_url(peer).version(listed.cluster_id).await {
                return Some((version, String::new()));
            }
        }
        None
    }

    /// How far the member behind the first endpoint has got, if it belongs to the listed cluster. Learners answer too.
    ///
    /// # Errors
    /// When no member of that cluster answers.
    pub async fn progress(&mut self, listed: &Membership) -> Result<Progress, Failure> {
        let endpoint = self.first()?;
        let status = self.status(&endpoint, listed).await?;
        let member_id = member_id(status.header());
        Ok(Progress { member_id, leader: status.leader(), applied: status.raft_applied_index() })
    }

    /// The status of a member of the listed cluster.
    async fn status(&mut self, endpoint: &Endpoint, listed: &Membership) -> Result<StatusResponse, Failure> {
        let status = self.request(endpoint, CHECK_TIMEOUT, async |client| client.status().await).await?;
        same_cluster(listed.cluster_id, cluster_id(status.header()))?;
        Ok(status)
    }

    /// Waits for the answer to a change as long as for any other answer, because the caller does not retry.
    #[must_use]
    pub fn asked_once(self) -> Self {
        Self { patience: REQUEST_TIMEOUT, ..self }
    }

    /// Adds an endpoint to try after the others.
    pub fn also_through(&mut self, endpoint: Endpoint) {
        if !self.endpoints.contains(&endpoint) {
            self.endpoints.push(endpoint);
        }
    }

    /// Lists the members, linearizably, through the first endpoint that can do so. Learners cannot, so the answer comes
    /// from a voter, and the next requests go to this voter.
    ///
    /// # Errors
    /// What each endpoint answered; [`Failure::Untrusted`] only if all of them failed in this way.
    pub async fn list(&mut self) -> Result<Membership, Failure> {
        let mut failures = Vec::new();
        for index in 0..self.endpoints.len() {
            let endpoint = self.endpoints[index].clone();
            match self.list_through(&endpoint).await {
                Ok(membership) => {
                    self.endpoints[..=index].rotate_right(1);
                    return Ok(membership);
                }
                Err(failure) => failures.push((endpoint, failure)),
            }
        }
        if failures.is_empty() {
            return Err(Failure::Refused("no endpoint is one of another member".to_owned()));
        }
        let untrusted = failures.iter().all(|(_, failure)| matches!(failure, Failure::Untrusted { .. }));
        let by_clock = failures.iter().any(|(_, failure)| matches!(failure, Failure::Untrusted { by_clock: true, .. }));
        let told = failures.into_iter().map(|(endpoint, failure)| match failure {
            Failure::Untrusted { why, .. } => format!("{endpoint}: {why}"),
            other => format!("{endpoint}: {other}"),
        });
        let told = told.collect::<Vec<_>>().join("; ");
        Err(if untrusted { Failure::Untrusted { why: told, by_clock } } else { Failure::Transient(told) })
    }

    async fn list_through(&mut self, endpoint: &Endpoint) -> Result<Membership, Failure> {
        let membership = self.list_of_any(endpoint).await?;
        if let Some(id) = self.id {
            same_cluster(id, membership.cluster_id)?;
        }
        Ok(membership)
    }

    async fn list_of_any(&mut self, endpoint: &Endpoint) -> Result<Membership, Failure> {
        self.request(endpoint, READ_TIMEOUT, async |client| {
            // The library returns the list as the asked member knows it, which may be outdated. A linearizable read
            // through the same member first makes sure that the member has caught up with all decisions so far.
            client.get("etcdadm", None).await?;
            let response = client.member_list().await?;
            let cluster_id = cluster_id(response.header());
            Ok(Membership { cluster_id, members: response.members().iter().map(member).collect() })
        })
        .await
    }

    /// Adds a member with this peer URL to the listed cluster, and returns its ID and all members.
    ///
    /// # Errors
    /// After [`Failure::Transient`], the member may have been added anyway.
    pub async fn add(
        &mut self,
        listed: &Membership,
        peer_url: &str,
        learner: bool,
    ) -> Result<(u64, Membership), Failure> {
        let added = self.change(async |client| {
            let options = learner.then(|| MemberAddOptions::new().with_is_learner());
            let response = client.member_add(vec![peer_url.to_owned()], options).await?;
            let cluster_id = cluster_id(response.header());
            let id = response.member().map_or(0, etcd_client::Member::id);
            Ok((id, Membership { cluster_id, members: response.member_list().iter().map(member).collect() }))
        });
        let (id, membership) = added.await?;
        match same_cluster(listed.cluster_id, membership.cluster_id) {
            Ok(()) => Ok((id, membership)),
            Err(why) => Err(self.take_out(id, &why).await),
        }
    }

    /// Removes a member that was added to another cluster by mistake, through the connection that added it. The member
    /// has never started, so that cluster loses nothing.
    async fn take_out(&mut self, id: u64, why: &Failure) -> Failure {
        let outcome = match self.at_voter(async |client| client.member_remove(id).await).await {
            Ok(_) => "is removed again".to_owned(),
            Err(failure) => format!("could not be removed again ({failure})"),
        };
        Failure::Transient(format!("{why}; member {id:x}, which it has added, {outcome}"))
    }

    /// Makes a learner of the listed cluster a voter.
    ///
    /// # Errors
    /// [`Failure::NotInSync`] until it has caught up. After [`Failure::Transient`], it may have been promoted anyway.
    pub async fn promote(&mut self, listed: &Membership, id: u64) -> Result<(), Failure> {
        let answer = self.change(async |client| client.member_promote(id).await).await?;
        same_cluster(listed.cluster_id, cluster_id(answer.header()))
    }

    /// Removes a member of the listed cluster.
    ///
    /// # Errors
    /// After [`Failure::Transient`], it may have been removed anyway.
    pub async fn remove(&mut self, listed: &Membership, id: u64) -> Result<(), Failure> {
        let answer = self.at_voter(async |client| client.member_remove(id).await).await?;
        same_cluster(listed.cluster_id, cluster_id(answer.header()))
    }

    fn first(&self) -> Result<Endpoint, Failure> {
        self.endpoints.first().cloned().ok_or_else(|| Failure::Refused("there is no endpoint".to_owned()))
    }

    async fn at_voter<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, Failure> {
        let endpoint = self.first()?;
        self.request(&endpoint, REQUEST_TIMEOUT, call).await
    }

    /// An addition or a promotion, through the voter that listed the members. Other members may be added or promoted at
    /// the same time.
    async fn change<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, Failure> {
        let endpoint = self.first()?;
        let begun = Instant::now();
        let answer = self.request(&endpoint, self.patience, call).await;
        self.patience = patience_after(self.patience, begun.elapsed());
        answer
    }

    async fn request<T>(
        &mut self,
        endpoint: &Endpoint,
        limit: Duration,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, Failure> {
        let url = endpoint.to_string();
        let mut client = match self.clients.remove(&url) {
            Some(client) => client,
            None => {
                let tls = TlsOptions::new()
                    .domain_name(endpoint.host.to_string())
                    .ca_certificate(Certificate::from_pem(&self.ca))
                    .identity(Identity::from_pem(&self.certificate, &self.key));
                let options = ConnectOptions::new().with_tls(tls).with_connect_timeout(CONNECT_TIMEOUT);
                Client::connect([&url], Some(options)).await.map_err(|error| Failure::of(&error))?
            }
        };
        match timeout(limit, call(&mut client)).await {
            Ok(Ok(answer)) => {
                self.clients.insert(url, client);
                Ok(answer)
            }
            Ok(Err(error)) => {
                let failure = Failure::of(&error);
                // A broken connection is opened again. A connection over which etcd refused a request is kept.
                if !matches!(failure, Failure::Transient(_) | Failure::Untrusted { .. }) {
                    self.clients.insert(url, client);
                }
                Err(failure)
            }
            Err(_) => Err(Failure::Transient(format!("no answer in {limit:?}"))),
        }
    }
}

/// How long to wait for the next change, after a change that took `took`: twice as long if the wait was too short, and
/// never less than before. If the wait stayed the same, a slow cluster would have each of its changes canceled before
/// it is done.
fn patience_after(patience: Duration, took: Duration) -> Duration {
    if took < patience { patience } else { (patience * 2).min(REQUEST_TIMEOUT) }
}

fn member(member: &etcd_client::Member) -> Member {
    Member {
        id: member.id(),
        name: member.name().to_owned(),
        peer_urls: member.peer_urls().to_vec(),
        client_urls: member.client_urls().to_vec(),
        learner: member.is_learner(),
    }
}

fn cluster_id(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, ResponseHeader::cluster_id)
}

fn member_id(header: Option<&ResponseHeader>) -> u64 {
    header.map_or(0, ResponseHeader::member_id)
}

/// The address may have passed to another cluster, and may pass back.
fn same_cluster(expected: u64, answered: u64) -> Result<(), Failure> {
    if answered == expected {
        return Ok(());
    }
    Err(Failure::Transient(format!("a member of cluster {answered:x} answered, and none of {expected:x}")))
}

#[cfg(test)]
mod tests;
