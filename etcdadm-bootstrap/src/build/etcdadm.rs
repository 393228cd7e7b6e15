//! The line that runs etcdadm.

use super::{Bootstrap, InvalidField, Role, SUCCESS_SENTINEL, shell, without_nul};
use api::version::{DEFAULT_ETCD_VERSION, EtcdVersion};

/// The command that makes the machine a member and then says so. It fails if etcdadm does: `set -e` alone would not
/// see to that, because etcdadm is not the last command of an and-list.
pub(super) fn command(bootstrap: &Bootstrap<'_>) -> Result<String, InvalidField> {
    let words: Vec<String> = arguments(bootstrap)?.iter().map(|argument| shell::word(argument)).collect();
    Ok(format!("etcdadm {} && echo success > {SUCCESS_SENTINEL} || exit 1", words.join(" ")))
}

fn arguments(bootstrap: &Bootstrap<'_>) -> Result<Vec<String>, InvalidField> {
    let spec = bootstrap.spec;
    let mut arguments = match bootstrap.role {
        Role::Init => vec!["init".to_owned()],
        Role::Join { client_urls } => vec!["join".to_owned(), client_urls.join(",")],
    };
    let mut flag = |name: &str, value: &str| arguments.extend([format!("--{name}"), value.to_owned()]);
    flag("init-system", "systemd");
    flag("name", bootstrap.member);
    flag("version", &version(bootstrap)?);
    if let Some(cloud_init) = &spec.cloud_init_config {
        let prefix = "spec.cloudInitConfig";
        if let Some(url) = &cloud_init.etcd_release_url {
            flag("release-url", without_nul(|| format!("{prefix}.etcdReleaseURL"), url)?);
        }
        if let Some(dir) = &cloud_init.install_dir {
            flag("install-dir", without_nul(|| format!("{prefix}.installDir"), dir)?);
        }
    }
    if let Some(suites) = &spec.cipher_suites {
        flag("cipher-suites", without_nul(|| "spec.cipherSuites".to_owned(), suites)?);
    }
    for (name, value) in &spec.etcdadm_args {
        let value = without_nul(|| format!("spec.etcdadmArgs[{name}]"), value)?;
        // In one word: a value that begins with a dash stays a value.
        arguments.push(format!("--{name}={value}"));
    }
    Ok(arguments)
}

fn version(bootstrap: &Bootstrap<'_>) -> Result<String, InvalidField> {
    let Some(asked) = bootstrap.spec.etcd_version() else { return Ok(DEFAULT_ETCD_VERSION.to_owned()) };
    let field = if bootstrap.spec.version.is_some() { "spec.version" } else { "spec.cloudInitConfig.version" };
    let version: EtcdVersion = asked.parse().map_err(|error| InvalidField::new(field, format!("{error}")))?;
    Ok(version.to_string())
}
