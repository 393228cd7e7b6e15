//! The requested version of etcd.

use super::{Finding, Installation, Subject, text};
use etcd_values::{DEFAULT_ETCD_VERSION, EtcdVersion};

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let wanted = text(&subject.etcd, "/spec/etcdadmConfigSpec/version");
    let running = subject.live.as_ref().map_or("", |live| text(live, "/status/version"));
    if wanted.is_empty() {
        return vec![Finding::ok(match running {
            "" => format!("not set: the first members get {DEFAULT_ETCD_VERSION}, and it is recorded"),
            running => format!("not set: the recorded one stays; members run {running}"),
        })];
    }
    let version = match wanted.parse::<EtcdVersion>() {
        Ok(version) => version,
        Err(error) => return vec![Finding::fault(error.to_string(), "correct spec.etcdadmConfigSpec.version")],
    };
    vec![match running.parse::<EtcdVersion>() {
        _ if !version.is_supported() => Finding::fault(
            format!("etcd {version} is not supported"),
            "choose a release of 3.5 (3.5.3 or later), 3.6 or 3.7",
        ),
        Ok(running) if running != version => Finding::warning(
            format!("members run {running}, and the spec says {version}"),
            "run kubectl etcdcluster plan -f FILE: it says which Machines are replaced, and whether the change is allowed",
        ),
        Ok(_) => Finding::ok(format!("etcd {version}, which the members run")),
        Err(_) if !version.pre_release().is_empty() => {
            Finding::warning(format!("etcd {version} is a pre-release"), "choose a release")
        }
        Err(_) if version.minor() < 5 => Finding::warning(
            format!("etcd {version} is too old for a new cluster: members join with a vote"),
            "choose a release of 3.5, 3.6 or 3.7",
        ),
        Err(_) => Finding::ok(format!("etcd {version}")),
    }]
}
