//! The line that runs etcdadm.

use super::{Bootstrap, InvalidField, Role, SUCCESS_SENTINEL, shell, without_nul};
use api::etcdadm_config::EtcdSettings;
use etcd_values::{CLUSTER_ID, DEFAULT_ETCD_VERSION, EtcdVersion, INIT_NOT_AFTER, TIMEOUT, check_cipher_suites};

/// How long etcdadm keeps trying. Nothing runs it a second time, and a machine may have to wait for a voter that is
/// down, or to catch up with a large database. This is the longest `startupGraceSeconds`, after which nothing waits for
/// the machine any more.
const PATIENCE: &str = "24h";

/// The command that makes the machine a member and then reports success. It fails if etcdadm fails. `set -e` alone does
/// not ensure this, because etcdadm is not the last command of an and-list.
pub(super) fn command(bootstrap: &Bootstrap<'_>) -> Result<String, InvalidField> {
    let words: Vec<String> = arguments(bootstrap)?.iter().map(|argument| shell::word(argument)).collect();
    // Variables instead of flags: an etcdadm that does not know them ignores them.
    let of_role = match bootstrap.role {
        Role::Init { not_after } => format!("{INIT_NOT_AFTER}={not_after:.0} "),
        Role::Join { cluster_id, .. } => cluster_id.map(|id| format!("{CLUSTER_ID}={id:x} ")).unwrap_or_default(),
    };
    let variables = format!("{of_role}{TIMEOUT}={PATIENCE} ");
    Ok(format!("{variables}etcdadm {} && echo success > {SUCCESS_SENTINEL} || exit 1", words.join(" ")))
}

fn arguments(bootstrap: &Bootstrap<'_>) -> Result<Vec<String>, InvalidField> {
    let spec = bootstrap.spec;
    let mut arguments = match bootstrap.role {
        Role::Init { .. } => vec!["init".to_owned()],
        Role::Join { client_urls, .. } => vec!["join".to_owned(), client_urls.join(",")],
    };
    let mut flag = |name: &str, value: &str| arguments.extend([format!("--{name}"), value.to_owned()]);
    flag("init-system", "systemd");
    flag("name", bootstrap.member);
    let version = version(bootstrap)?;
    flag("version", &version.to_string());
    if let Some(limit) = max_learners(bootstrap, &version)? {
        flag("max-learners", &limit.to_string());
    }
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
        let list: Vec<&str> = suites.split(',').collect();
        check_cipher_suites(&list).map_err(|invalid| InvalidField::new("spec.cipherSuites", invalid.why))?;
        flag("cipher-suites", suites);
    }
    for setting in spec.etcd.iter().map(|etcd| etcd_flags(etcd, &version)).collect::<Result<Vec<_>, _>>()?.concat() {
        flag("etcd-flag", &setting);
    }
    for (name, value) in &spec.etcdadm_args {
        let value = without_nul(|| format!("spec.etcdadmArgs[{name}]"), value)?;
        // In one word, so that a value that begins with a dash stays a value.
        arguments.push(format!("--{name}={value}"));
    }
    Ok(arguments)
}

fn version(bootstrap: &Bootstrap<'_>) -> Result<EtcdVersion, InvalidField> {
    let field = if bootstrap.spec.version.is_some() { "spec.version" } else { "spec.cloudInitConfig.version" };
    let wanted = bootstrap.spec.etcd_version().unwrap_or(DEFAULT_ETCD_VERSION);
    wanted.parse().map_err(|invalid: etcd_values::Invalid| InvalidField::new(field, invalid.why))
}

/// The learner limit, if it is not etcd's default of one. etcdadm needs it, because members with different limits drop
/// each other's learners and then panic.
fn max_learners(bootstrap: &Bootstrap<'_>, version: &EtcdVersion) -> Result<Option<u32>, InvalidField> {
    let Some(text) = bootstrap.max_learners else { return Ok(None) };
    let invalid = |problem: String| {
        InvalidField::new(format!("metadata.annotations[{}]", api::names::MAX_LEARNERS_ANNOTATION), problem)
    };
    match text.parse::<u32>() {
        Ok(1) => Ok(None),
        Ok(limit @ 2..) if version.has_max_learners() => Ok(Some(limit)),
        Ok(limit @ 2..) => Err(invalid(format!(
            "etcd {version} allows one learner at a time and the limit of this cluster is {limit}, which never \
             changes; use etcd 3.6 or later"
        ))),
        _ => Err(invalid(format!(
            "{text:?} is not a limit of learners; it must be a number from 1 on, the same for all members of the \
             cluster"
        ))),
    }
}

/// The settings of etcd as `name=value`.
fn etcd_flags(settings: &EtcdSettings, version: &EtcdVersion) -> Result<Vec<String>, InvalidField> {
    let invalid = |(field, why)| InvalidField::new(format!("spec.etcd.{field}"), why);
    settings.check(version).map_err(invalid)?;
    Ok(settings.flags().iter().map(|(_, name, value)| format!("{name}={value}")).collect())
}
