//! EtcdadmConfig: how a Machine is made an etcd member.

mod etcd;

pub use etcd::{AutoCompactionMode, EtcdFlag, EtcdSettings};

use crate::meta::TemplateMeta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a version must look like, as a rule of the API server.
const VERSION_RULE: &str =
    r"self.matches(r'^v?(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$')";

/// Whether a list of cipher suites has one that HTTP/2 needs.
fn http2_rule() -> String {
    format!("self.matches('(^|,)({})(,|$)')", etcd_values::HTTP2_CIPHER_SUITES.join("|"))
}

/// How a Machine is made an etcd member. Fields keep the names that EKS Anywhere's EtcdadmConfig gave them.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "EtcdadmConfig",
    plural = "etcdadmconfigs",
    category = "cluster-api",
    namespaced,
    status = "EtcdadmConfigStatus",
    derive = "PartialEq",
    doc = "EtcdadmConfig makes a Machine an etcd member: the Machine's bootstrap data is made from it.",
    label("cluster.x-k8s.io/provider", "bootstrap-etcdadm"),
    label("cluster.x-k8s.io/v1beta1", "v1alpha4_v1beta1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha4_v1beta1"),
    label("clusterctl.cluster.x-k8s.io", ""),
    label("visualizer.cluster.x-k8s.io", ""),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"
    ),
    printcolumn(
        name = "Data",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='DataSecretAvailable')].status",
        description = "Whether the bootstrap data exists"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='DataSecretAvailable')].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.dataSecretName) || self.spec == oldSelf.spec").message("spec can no longer change: the Machine's bootstrap data was made from it (see status.dataSecretName). Change the EtcdCluster, or whatever makes new Machines")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.version) || !has(self.cloudInitConfig) || !has(self.cloudInitConfig.version)").message("etcd's version is given twice: set either version or cloudInitConfig.version"))]
#[x_kube(validation = Rule::new("!has(self.etcdadmBuiltin) || !self.etcdadmBuiltin || !has(self.etcdadmInstallCommands) || size(self.etcdadmInstallCommands) == 0").message("etcdadmInstallCommands only run where etcdadm is not in the machine's image: set etcdadmBuiltin to false, or leave one of them out"))]
#[x_kube(validation = Rule::new("!has(self.etcdadmBuiltin) || self.etcdadmBuiltin || (has(self.etcdadmInstallCommands) && size(self.etcdadmInstallCommands) > 0)").message("etcdadmBuiltin is false, so etcdadmInstallCommands must say how etcdadm gets onto the machine"))]
#[x_kube(validation = Rule::new("!has(self.cloudInitConfig) || self.cloudInitConfig.modules == 'All' || ((!has(self.users) || size(self.users) == 0) && !has(self.ntp))").message("users and ntp need cloudInitConfig.modules: All; WriteFilesAndRunCmd has no module for them"))]
pub struct EtcdadmConfigSpec {
    /// Users to create on the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub users: Vec<User>,

    /// Whether the machine's image has etcdadm in its PATH. Default: true without install commands, else false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcdadm_builtin: Option<bool>,

    /// Commands that install etcdadm, if it is not in the machine's image. They run after
    /// `preEtcdadmCommands`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub etcdadm_install_commands: Vec<String>,

    /// Commands that run before etcdadm. If one fails, the bootstrap fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub pre_etcdadm_commands: Vec<String>,

    /// Commands that run after etcdadm has succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub post_etcdadm_commands: Vec<String>,

    /// Format of the bootstrap data. Only cloud-config is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,

    /// Files to write before any command runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a.path == b.path))").message("two files have the same path"))]
    pub files: Vec<File>,

    /// TLS cipher suites that etcd may use, as etcd names them, separated by commas. Default: Go's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Z0-9_]+(,[A-Z0-9_]+)*$')").message("must be cipher suites as etcd names them, separated by commas, such as TLS_AES_128_GCM_SHA256"))]
    #[x_kube(validation = Rule::new(http2_rule()).message("must have TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: HTTP/2 needs one of them, and etcd does not start without"))]
    pub cipher_suites: Option<String>,

    /// Time servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntp: Option<Ntp>,

    /// Proxy for downloads on the machine, among them etcd's release, and for containerd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,

    /// Mirror of container registries for the machine's containerd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_mirror: Option<RegistryMirror>,

    /// Settings for cloud-config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init_config: Option<CloudInitConfig>,

    /// etcd version, such as 3.6.16. Default: for an EtcdCluster, the version that was recorded at its creation; otherwise
    /// that of the installed release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(VERSION_RULE).message("must be an etcd version such as 3.6.16"))]
    pub version: Option<String>,

    /// Settings of etcd itself: database quota, timing, metrics, and further flags. The machine's image needs an etcdadm
    /// of this project that knows `--etcd-flag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdSettings>,

    /// Further flags of etcdadm, by name and without the dashes: data-dir, download-connect-timeout, log-level,
    /// release-sha256, server-cert-extra-sans.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    #[x_kube(validation = Rule::new("self.all(name, name in ['data-dir', 'download-connect-timeout', 'log-level', 'release-sha256', 'server-cert-extra-sans'])").message("unknown etcdadm argument; possible are data-dir, download-connect-timeout, log-level, release-sha256 and server-cert-extra-sans (version, cipher-suites, release-url and install-dir have fields of their own)"))]
    #[x_kube(validation = Rule::new(r"!('data-dir' in self) || self['data-dir'].matches(r'^/[^\s]*$')").message("data-dir must be an absolute path without spaces"))]
    #[x_kube(validation = Rule::new(r"!('download-connect-timeout' in self) || self['download-connect-timeout'].matches(r'^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$')").message("download-connect-timeout must be a duration such as 10s or 1m30s"))]
    #[x_kube(validation = Rule::new("!('log-level' in self) || self['log-level'] in ['error', 'warn', 'info', 'debug', 'trace']").message("log-level must be error, warn, info, debug or trace"))]
    #[x_kube(validation = Rule::new("!('release-sha256' in self) || self['release-sha256'].matches('^[0-9A-Fa-f]{64}$')").message("release-sha256 must be 64 hexadecimal digits"))]
    #[x_kube(validation = Rule::new(r"!('server-cert-extra-sans' in self) || self['server-cert-extra-sans'].matches(r'^[^,\s]+(,[^,\s]+)*$')").message("server-cert-extra-sans must be names and addresses, separated by commas without spaces"))]
    pub etcdadm_args: BTreeMap<String, String>,
}

impl EtcdadmConfigSpec {
    /// The etcd version asked for, wherever the user has put it. `None`: the default of this release.
    #[must_use]
    pub fn etcd_version(&self) -> Option<&str> {
        self.version.as_deref().or_else(|| self.cloud_init_config.as_ref()?.version.as_deref())
    }
}

/// Formats of bootstrap data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Format {
    /// cloud-init's cloud-config.
    #[default]
    #[serde(rename = "cloud-config")]
    CloudConfig,
}

/// A user to create.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.passwd) || !has(self.passwdFrom)").message("set either passwd or passwdFrom"))]
pub struct User {
    /// Login name.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[a-z_][a-z0-9_-]*$')").message("must be a login name: lower-case letters, digits, - and _, and no digit or - at its beginning"))]
    pub name: String,
    /// Comment, usually the full name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub gecos: Option<String>,
    /// Further groups, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub groups: Option<String>,
    /// Home directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub home_dir: Option<String>,
    /// Whether the account is inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<bool>,
    /// Login shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub shell: Option<String>,
    /// Hash of the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub passwd: Option<String>,
    /// Secret that has the hash of the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passwd_from: Option<SecretSource>,
    /// Primary group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub primary_group: Option<String>,
    /// Whether password login is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_password: Option<bool>,
    /// Rule for sudo, such as `ALL=(ALL) NOPASSWD:ALL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub sudo: Option<String>,
    /// SSH keys that may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ssh_authorized_keys: Vec<String>,
}

/// A file to write.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.content) != has(self.contentFrom)").message("set either content or contentFrom"))]
pub struct File {
    /// Where the file goes. Must be an absolute path that the bootstrap itself does not write.
    #[schemars(length(min = 2, max = 512))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("path must be absolute: it must begin with /"))]
    #[x_kube(validation = Rule::new("!self.startsWith('/etc/etcd/') && !self.startsWith('/run/cluster-api/')").message("paths below /etc/etcd/ and /run/cluster-api/ are written by the bootstrap itself"))]
    pub path: String,
    /// Owner, as `user` or `user:group`. Default root:root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9._-]+(:[A-Za-z0-9._-]+)?$')").message("must be a user or user:group, such as root:root"))]
    pub owner: Option<String>,
    /// Permissions in octal, such as 0640. Default 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^0?[0-7]{3,4}$')").message("must be permissions in octal, such as '0640'"))]
    pub permissions: Option<String>,
    /// How the content is encoded. Default: plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Whether to append to an existing file. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<bool>,
    /// The content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262144))]
    pub content: Option<String>,
    /// Secret that has the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_from: Option<SecretSource>,
}

/// Encodings of a file's content, as cloud-init knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Encoding {
    /// Base64.
    #[serde(rename = "base64")]
    Base64,
    /// Compressed by gzip.
    #[serde(rename = "gzip")]
    Gzip,
    /// Compressed by gzip, then Base64.
    #[serde(rename = "gzip+base64")]
    GzipBase64,
}

/// A value in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretSource {
    /// The Secret, in the namespace of the config.
    pub secret: SecretKey,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Time servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ntp {
    /// Servers to ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub servers: Vec<String>,
    /// Whether the time service runs. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Proxy settings.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.httpProxy) || has(self.httpsProxy)").message("set httpProxy or httpsProxy"))]
pub struct Proxy {
    /// Proxy for http, such as `http://proxy:3128`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9.:/@%_\[\]-]+$')").message("must be the URL of a proxy, such as http://proxy.example:3128"))]
    pub http_proxy: Option<String>,
    /// Proxy for https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9.:/@%_\[\]-]+$')").message("must be the URL of a proxy, such as http://proxy.example:3128"))]
    pub https_proxy: Option<String>,
    /// Hosts, domains and networks that are reached directly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub no_proxy: Vec<String>,
}

/// Mirror of container registries.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryMirror {
    /// Host of the mirror, with a port and a path if needed, and without a scheme: `mirror.example:5000/v2/all`.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9.:/_\[\]-]+$') && !self.contains('://')").message("must be a host with a port and a path if needed, and without a scheme, such as mirror.example:5000/v2/all"))]
    pub endpoint: String,
    /// CA certificate of the mirror, in PEM.
    #[serde(default, rename = "caCert", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca_cert: Option<String>,
}

/// Settings for cloud-config.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitConfig {
    /// etcd version, such as 3.6.16. The same as `version` one level up; set only one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(VERSION_RULE).message("must be an etcd version such as 3.6.16"))]
    pub version: Option<String>,
    /// URL that etcd's releases are downloaded from, if the machine's image does not have the wanted one. Default: GitHub's
    /// releases of etcd.
    #[serde(default, rename = "etcdReleaseURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^https?://[^\s]+$')").message("must be an http or https URL"))]
    pub etcd_release_url: Option<String>,
    /// Where etcd's programs go. Default /opt/bin/.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^/[^\s]*$')").message("must be an absolute path without spaces"))]
    pub install_dir: Option<String>,
    /// Modules of cloud-init that the data may use.
    #[serde(default)]
    pub modules: CloudInitModules,
}

/// cloud-init modules that bootstrap data may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CloudInitModules {
    /// All modules that the spec needs. The default.
    #[default]
    All,
    /// Only `write_files` and `runcmd`, in the simple form that the docker infrastructure provider understands.
    WriteFilesAndRunCmd,
}

/// Observed state of an EtcdadmConfig. It follows both of Cluster API's bootstrap contracts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdadmConfigStatus {
    /// Contract v1beta1: the bootstrap data exists.
    #[serde(default)]
    pub ready: bool,
    /// Contract v1beta2: progress of the initialization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Secret with the bootstrap data (`value`) and its format (`format`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Progress of the initialization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// The bootstrap data exists.
    #[serde(default)]
    pub data_secret_created: bool,
}

/// Template from which Cluster API clones EtcdadmConfigs.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "EtcdadmConfigTemplate",
    plural = "etcdadmconfigtemplates",
    category = "cluster-api",
    namespaced,
    derive = "PartialEq",
    doc = "EtcdadmConfigTemplate is the template from which Cluster API clones EtcdadmConfigs.",
    label("cluster.x-k8s.io/provider", "bootstrap-etcdadm"),
    label("cluster.x-k8s.io/v1beta1", "v1alpha4_v1beta1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha4_v1beta1"),
    label("clusterctl.cluster.x-k8s.io", ""),
    label("visualizer.cluster.x-k8s.io", ""),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct EtcdadmConfigTemplateSpec {
    /// The template.
    pub template: EtcdadmConfigTemplateResource,
}

/// What a cloned EtcdadmConfig gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EtcdadmConfigTemplateResource {
    /// Labels and annotations of the clone.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// Spec of the clone.
    #[serde(default)]
    pub spec: EtcdadmConfigSpec,
}
