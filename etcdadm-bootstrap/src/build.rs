//! Desired objects and the bootstrap data itself. Pure: the same input gives the same bytes.

mod cloud_config;
mod commands;
mod etcdadm;
mod files;
mod proxy;
mod registry_mirror;
mod secret_values;
mod shell;
mod template;
mod write_files_and_runcmd;
mod yaml;

pub mod objects;
pub mod pki;

pub use pki::CertificateAuthority;
pub use secret_values::{SecretValues, references};

use api::EtcdadmConfigSpec;
use api::etcdadm_config::{CloudInitModules, Format as FormatName};
use k8s_openapi::jiff::Timestamp;
use std::fmt;

/// The machine's directory for the state of its bootstrap, by Cluster API's convention.
const STATE_DIR: &str = "/run/cluster-api";
/// The file that is written when etcdadm has succeeded: infrastructure providers look for it.
const SUCCESS_SENTINEL: &str = "/run/cluster-api/bootstrap-success.complete";

/// The most bytes that the values of a Secret may have. The API server refuses more.
const SECRET_LIMIT: usize = 1024 * 1024;

/// Everything that bootstrap data is made from.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap<'a> {
    /// Name of the member: that of its Machine.
    pub member: &'a str,
    /// How it becomes a member.
    pub role: &'a Role,
    /// etcd's CA, which goes onto the machine.
    pub authority: &'a CertificateAuthority,
    /// What the user wants.
    pub spec: &'a EtcdadmConfigSpec,
    /// How many learners the cluster may have at a time: the value of [`api::names::MAX_LEARNERS_ANNOTATION`], which
    /// every EtcdadmConfig of an EtcdCluster carries. `None`: one.
    pub max_learners: Option<&'a str>,
    /// Values of the Secrets that the spec refers to.
    pub secrets: &'a SecretValues,
}

/// How a member becomes part of its etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The first member of a new cluster.
    Init {
        /// When the data expires. A machine that is reinstalled later reads the same data, and must not start a second,
        /// empty cluster.
        not_after: Timestamp,
    },
    /// A further member.
    Join {
        /// Client URLs of the present voters, at least one.
        client_urls: Vec<String>,
        /// ID of the cluster, if it is known.
        cluster_id: Option<u64>,
    },
}

/// Bootstrap data and its format, as they go into the Secret. The data contains the CA's key, so `Debug` shows only the
/// size.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The data.
    pub value: String,
    /// Name of the format by Cluster API's contract.
    pub format: &'static str,
}

impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rendered({} bytes of {})", self.value.len(), self.format)
    }
}

/// A field of the spec that cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidField {
    /// Path of the field, such as `spec.files[2].content`.
    pub field: String,
    /// What is wrong, and what would be right. It never contains a value from a Secret.
    pub problem: String,
}

impl InvalidField {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// A format of bootstrap data.
trait Format {
    /// Renders the data.
    ///
    /// # Errors
    /// A field that this format cannot express.
    fn render(&self, bootstrap: &Bootstrap<'_>) -> Result<String, InvalidField>;
}

/// Renders bootstrap data in the format that the spec asks for.
///
/// # Errors
/// The first field that cannot be rendered.
pub fn render(bootstrap: &Bootstrap<'_>) -> Result<Rendered, InvalidField> {
    let (name, format) = format_of(bootstrap.spec);
    let rendered = Rendered { value: format.render(bootstrap)?, format: name };
    if rendered.value.len() + rendered.format.len() > SECRET_LIMIT {
        let problem = format!(
            "the bootstrap data would have {} bytes; a Secret holds at most {SECRET_LIMIT}. Have large files \
             downloaded by a command",
            rendered.value.len()
        );
        return Err(InvalidField::new("spec.files", problem));
    }
    Ok(rendered)
}

/// The name that Cluster API's contract has for the format, and the format.
fn format_of(spec: &EtcdadmConfigSpec) -> (&'static str, &'static dyn Format) {
    let FormatName::CloudConfig = spec.format.unwrap_or_default();
    match spec.cloud_init_config.as_ref().map(|c| c.modules).unwrap_or_default() {
        CloudInitModules::All => ("cloud-config", &cloud_config::CloudConfig),
        CloudInitModules::WriteFilesAndRunCmd => ("cloud-config", &write_files_and_runcmd::WriteFilesAndRunCmd),
    }
}

/// Refuses a NUL, which no file name, command or argument on Linux can hold.
fn without_nul(field: impl Fn() -> String, text: &str) -> Result<&str, InvalidField> {
    if text.contains('\0') { Err(InvalidField::new(field(), "must not contain a NUL character")) } else { Ok(text) }
}

#[cfg(test)]
mod tests;
