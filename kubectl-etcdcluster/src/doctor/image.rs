//! Whether machines have etcdadm when they boot.

use super::{Finding, Installation, Subject};
use serde_json::Value;

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let config = subject.etcd.pointer("/spec/etcdadmConfigSpec").cloned().unwrap_or_default();
    let installs = config["etcdadmInstallCommands"].as_array().is_some_and(|commands| !commands.is_empty());
    let builtin = config.get("etcdadmBuiltin").and_then(Value::as_bool);
    vec![match (builtin, installs) {
        (Some(false), false) => Finding::fault(
            "etcdadmBuiltin is false, and no etcdadmInstallCommands bring etcdadm onto the machine",
            "say how to install it in spec.etcdadmConfigSpec.etcdadmInstallCommands",
        ),
        (Some(true), true) => Finding::fault(
            "etcdadmBuiltin is true, and there are etcdadmInstallCommands, which would never run",
            "set it to false, or leave the commands out",
        ),
        (_, true) => Finding::unseen("etcdadmInstallCommands install etcdadm; this program does not run them", ""),
        _ if subject.has_begun() => Finding::ok("etcd has come up, so the image had what it takes"),
        _ => Finding::unseen(
            "whether the image has etcdadm in its PATH cannot be seen from here",
            "try it: start a machine of the template and run etcdadm version on it (docs/examples.md, With other infrastructure)",
        ),
    }]
}
