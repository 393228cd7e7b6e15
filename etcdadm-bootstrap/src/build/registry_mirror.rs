//! The mirror of container registries, in the form that containerd reads for every registry without its own file.

use super::files::WriteFile;
use api::EtcdadmConfigSpec;

const DIR: &str = "/etc/containerd/certs.d/_default";

/// `hosts.toml`, and the mirror's CA if it has one. containerd falls back to the registry itself.
pub(super) fn files(spec: &EtcdadmConfigSpec) -> Vec<WriteFile> {
    let Some(mirror) = &spec.registry_mirror else { return Vec::new() };
    let mut hosts = format!(
        "[host.{}]\n  capabilities = [\"pull\", \"resolve\"]\n",
        toml_string(&format!("https://{}", mirror.endpoint))
    );
    if mirror.endpoint.contains('/') {
        // The path is complete: containerd must not add `/v2`.
        hosts.push_str("  override_path = true\n");
    }
    let mut files = Vec::new();
    if let Some(ca) = &mirror.ca_cert {
        let path = format!("{DIR}/ca.crt");
        hosts.push_str(&format!("  ca = {}\n", toml_string(&path)));
        files.push(WriteFile::ours(&path, "0644", ca.as_bytes()));
    }
    files.push(WriteFile::ours(&format!("{DIR}/hosts.toml"), "0644", hosts));
    files
}

/// A basic string of TOML.
fn toml_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
