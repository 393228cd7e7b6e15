//! The image of load balancers, in place of kind's.

use super::{Daemon, SUITE, debootstrap, file, keep_address, script};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The name that the docker infrastructure of Cluster API 1.12 to 1.14 asks for.
const IMAGE: &str = "kindest/haproxy:v20230606-42a2262b";
const PACKAGES: &str = "haproxy,iproute2";
/// `docker exec` finds this program before Debian's. The docker infrastructure asks for more connections than a process
/// may have here.
const HAPROXY: &str = "#!/bin/sh\nkeep-address && exec /usr/sbin/haproxy -n 2000 \"$@\"\n";
const CONFIG: &str = "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
    frontend control-plane\n  bind *:6443\n";

/// The root directory of the image.
pub(super) fn root() -> Result<PathBuf> {
    super::root("load-balancer", &[SUITE, PACKAGES, HAPROXY, CONFIG, keep_address::SCRIPT], |root| {
        debootstrap(PACKAGES, root)?;
        file(root, "usr/local/etc/haproxy/haproxy.cfg", CONFIG)?;
        script(root, keep_address::PROGRAM, keep_address::SCRIPT)?;
        script(root, "usr/local/sbin/haproxy", HAPROXY)
    })
}

/// Makes the image.
pub(super) async fn import(daemon: &Daemon, root: &Path) -> Result<()> {
    daemon.import(IMAGE, "haproxy", &[(root, ".")]).await
}
