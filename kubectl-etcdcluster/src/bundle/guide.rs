//! The page that says what a report contains, and what it leaves out.

use super::Material;
use crate::facts::PROVIDER_LABEL;
use crate::redact;
use crate::text::count;
use kube::ResourceExt;

/// The text that every report has.
const LEFT_OUT: &str = "\
## What was left out, and why

A report is for others to read, so nothing in it may open a door.

- **The values of Secrets.** `secrets.yaml` has their names, labels and owners, the names and lengths of their values, and of
  certificates subject, issuer and dates.
- **Values of fields whose names say that they are secret**: passwords, tokens, keys, SSH keys, the content of files. In their
  place stands `(redacted: N bytes)`.
- **What looks like a key or a token** in any other text, logs included: PEM, long random words, values after names such as
  `password=`, and what stands before the `@` of a URL. In its place stands `(redacted)`. Some of that was harmless.
- **`managedFields` and the manifest as `kubectl apply` has stored it**: they repeat the rest.
- **Consoles of machines, and what runs in the cluster itself**: `kubectl etcdcluster logs` says how to get at consoles.

Not left out: names, IP addresses, URLs, labels, annotations, commands (`preEtcdadmCommands` and the like). A password that
looks like a word, in a place that nothing says holds one, is not found. **Look through the files before you send them.**
";

/// The page.
pub(super) fn guide(material: &Material) -> String {
    let etcd = &material.snapshot.etcd;
    let (namespace, name) = (etcd.namespace().unwrap_or_default(), etcd.name_any());
    let mut text = format!(
        "# Report on EtcdCluster {namespace}/{name}\n\nMade at {:.0} by kubectl etcdcluster {}.\n\n## What is in it\n\n",
        material.snapshot.now, material.versions.plugin
    );
    let events = count(material.events.len(), "event");
    for line in [
        format!("`status.txt`: what `status` and `why` say of it, and {events}"),
        "`versions.yaml`: what runs in which version, and the CRDs with their labels".to_owned(),
        format!("`secrets.yaml`: {} of the Cluster, without their values", count(material.secrets.len(), "Secret")),
        format!("`objects/KIND/NAMESPACE.NAME.yaml`: {}", count(material.objects.len(), "object")),
        logs(material),
    ] {
        text.push_str(&format!("- {line}\n"));
    }
    text.push('\n');
    text.push_str(LEFT_OUT);
    if !material.unread.is_empty() {
        text.push_str("\n## What could not be read\n\n");
        text.extend(material.unread.iter().map(|what| format!("- {}\n", redact::text(what))));
    }
    text
}

fn logs(material: &Material) -> String {
    match material.logs.len() {
        0 => format!("no log: no Pod with the label `{PROVIDER_LABEL}` whose log could be read"),
        logs => format!("`manager/`: {} of managers, of each the last lines", count(logs, "log")),
    }
}
