//! etcd's settings, all of them as environment variables: etcd does not start if a setting is given both as a variable
//! and as a flag.

use std::fmt::Write;
use std::net::Ipv4Addr;

use etcd_values::{cipher_suites_with_ecdsa, environment_name};

use crate::endpoint::{CLIENT_PORT, Endpoint};
use crate::etcd::Member;
use crate::paths::Paths;
use crate::pki::authority::AUTHORITY;
use crate::pki::{PEER, SERVER};
use crate::settings::Settings;

/// What etcd.env says about a start without data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// As the first member of a new cluster.
    New {
        /// The initial cluster token. It distinguishes this cluster from others that once had the same member.
        token: String,
    },
    /// As a member that was added to an existing cluster.
    Existing {
        /// `ETCD_INITIAL_CLUSTER`, from [`initial_cluster`].
        initial_cluster: String,
    },
    /// As the member that its data identifies. If etcd has data, it ignores these settings; if it has none, they keep
    /// it from starting.
    Again,
}

/// The content of etcd.env. The settings are the same for every supported version.
pub fn render(paths: &Paths, settings: &Settings, start: &Start) -> String {
    let client = settings.client_endpoint().to_string();
    let peer = settings.peer_endpoint().to_string();
    let listen_client = if settings.address.is_loopback() {
        client.clone()
    } else {
        // Clients on this machine do not need to know its address.
        format!("{client},{}", Endpoint::at(Ipv4Addr::LOCALHOST.into(), CLIENT_PORT))
    };
    let (initial_cluster, state, token) = match start {
        Start::New { token } => (format!("{}={peer}", settings.name), "new", Some(token)),
        Start::Existing { initial_cluster } => (initial_cluster.clone(), "existing", None),
        Start::Again => (format!("{}={peer}", settings.name), "existing", None),
    };
    let certificate = |name| paths.certificate(name).display().to_string();
    let key = |name| paths.key(name).display().to_string();

    let mut lines = vec![
        ("NAME", settings.name.clone()),
        ("DATA_DIR", paths.data_dir().display().to_string()),
        ("LISTEN_CLIENT_URLS", listen_client),
        ("ADVERTISE_CLIENT_URLS", client),
        ("LISTEN_PEER_URLS", peer.clone()),
        ("INITIAL_ADVERTISE_PEER_URLS", peer),
        ("INITIAL_CLUSTER", initial_cluster),
        ("INITIAL_CLUSTER_STATE", state.to_owned()),
    ];
    lines.extend(token.map(|token| ("INITIAL_CLUSTER_TOKEN", token.clone())));
    lines.extend([
        ("STRICT_RECONFIG_CHECK", "true".to_owned()),
        ("CLIENT_CERT_AUTH", "true".to_owned()),
        ("TRUSTED_CA_FILE", certificate(AUTHORITY)),
        ("CERT_FILE", certificate(SERVER)),
        ("KEY_FILE", key(SERVER)),
        ("PEER_CLIENT_CERT_AUTH", "true".to_owned()),
        ("PEER_TRUSTED_CA_FILE", certificate(AUTHORITY)),
        ("PEER_CERT_FILE", certificate(PEER)),
        ("PEER_KEY_FILE", key(PEER)),
    ]);
    if !settings.cipher_suites.is_empty() {
        lines.push(("CIPHER_SUITES", cipher_suites_with_ecdsa(&settings.cipher_suites).join(",")));
    }
    if let Some(learners) =
        settings.max_learners.filter(|learners| *learners > 1 && settings.version.has_max_learners())
    {
        lines.push(("MAX_LEARNERS", learners.to_string()));
    }
    let mut text = "# Written by etcdadm.\n".to_owned();
    for (name, value) in lines {
        let _ = writeln!(text, "ETCD_{name}={value}");
    }
    for (flag, value) in &settings.etcd_flags {
        let _ = writeln!(text, "{}={value}", environment_name(flag));
    }
    text
}

/// `ETCD_INITIAL_CLUSTER` of a member that joins as `own_name` with the ID `own`.
///
/// It must contain every member of the member list, started or not, or etcd refuses to start. etcd identifies the
/// members by their URLs, but would merge two members with the same name, so the other members are named by their IDs.
/// An ID also stays the same when a member that joins at the same time publishes its name, so a member that is starting
/// with this list need not be restarted.
///
/// # Errors
/// When a member's URL cannot be written into the file.
pub fn initial_cluster(members: &[Member], own: u64, own_name: &str) -> Result<String, String> {
    let mut entries = Vec::new();
    for member in members {
        let id = format!("{:x}", member.id);
        let name = match member.id == own {
            true => own_name.to_owned(),
            false if id == own_name => format!("{id}_"),
            false => id,
        };
        for url in &member.peer_urls {
            let plain = |b: u8| b.is_ascii_graphic() && !b",=\"'\\#$`".contains(&b);
            if !url.bytes().all(plain) {
                return Err(format!("member {:x} has the peer URL {url:?}, which no member should have", member.id));
            }
            entries.push(format!("{name}={url}"));
        }
    }
    Ok(entries.join(","))
}
