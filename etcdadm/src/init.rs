//! `etcdadm init`: a new cluster with this machine as its only member.

use anyhow::{Context, Result, bail};
use time::OffsetDateTime;

use crate::config::{self, env::Start};
use crate::endpoint::same_url;
use crate::member::MemberRecord;
use crate::node::{Node, POLL};
use crate::plan::{self, Deadline, InitStep};

/// Makes this machine the first member of a new cluster, and returns when the member is healthy. A machine that already
/// is a member stays as it is, and a machine that is not starts no cluster after `not_after`.
///
/// # Errors
/// When a step fails, or time is up. The next run continues where this one stopped.
pub async fn init(node: &Node, not_after: Option<OffsetDateTime>) -> Result<()> {
    node.within_time(steps(node, not_after)).await
}

async fn steps(node: &Node, not_after: Option<OffsetDateTime>) -> Result<()> {
    // Uses the time at which the run began: a run that began in time is not refused in the middle.
    let deadline = not_after.map(|not_after| Deadline { not_after, now: node.now });
    let local = node.local().await?;
    if let InitStep::Refuse(why) = plan::init(&local, deadline) {
        bail!(why);
    }
    let authority = match node.authority()? {
        Some(authority) => authority,
        // The member's peers and clients trust the authority that the member was set up with.
        None if local.is_member() => bail!(
            "this machine is a member, and there is no certificate authority in {}; put the ca.crt and ca.key there that it \
             was set up with, or give their directory with --certs-dir",
            node.settings.certs_dir.display()
        ),
        None => node.new_authority()?,
    };
    node.install(&local).await?;
    node.certificates(&authority, &local)?;
    let mut member = node.cluster(&authority, vec![node.settings.client_endpoint()])?;
    node.tell_differences(&local)?;
    loop {
        let local = node.local().await?;
        match plan::init(&local, deadline) {
            InitStep::StartNew => {
                let token = config::token(&node.paths)?;
                node.ensure_started(&local, &Start::New { token }).await?;
            }
            InitStep::StartAgain => node.start(&Start::Again)?,
            InitStep::AwaitHealth => {
                // From now on, the member never starts empty. This comes before anybody learns of the cluster.
                node.mark_existing()?;
                match member.check().await {
                    Ok(()) => break,
                    Err(why) => node.wait(POLL, format!("for this member to be healthy ({why})")).await,
                }
            }
            InitStep::Refuse(why) => bail!(why),
        }
    }
    let membership = member.list().await.context("the member is healthy, but does not list its cluster")?;
    let peer_url = node.settings.peer_endpoint().to_string();
    let own = membership.members.iter().find(|m| m.peer_urls.iter().any(|url| same_url(url, &peer_url)));
    let own = own.with_context(|| {
        format!(
            "the member on this machine does not have the peer URL {peer_url}; give its address with --bind-address"
        )
    })?;
    let record = MemberRecord::of(membership.cluster_id, own.id, own.name.clone(), peer_url);
    record.store(&node.paths)?;
    tracing::info!(
        "member {:x} of cluster {:x} is healthy; other machines join with: etcdadm join {}",
        record.member_id,
        record.cluster_id,
        node.settings.client_endpoint()
    );
    Ok(())
}
