//! EtcdadmConfig: how a Machine becomes an etcd member.

mod etcd;

pub use etcd::{AutoCompactionMode, EtcdFlag, EtcdSettings};

use crate::meta::TemplateMeta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The form of a version, as a rule for the API server.
const VERSION_RULE: &str =
    r"self.matches(r'^v?(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$')";

/// The versions that nobody should run: see `EtcdVersion::is_supported`.
const SAFE_VERSION_RULE: &str = r"!self.matches(r'^v?3\.5\.[0-2](-|$)')";
const SAFE_VERSION: &str = "etcd 3.5.0 to 3.5.2 may lose data when a member is killed (etcd#13766); use 3.5.3 or later";

/// The rule that a list of cipher suites has one that HTTP/2 needs.
fn http2_rule() -> String {
    format!("self.matches('(^|,)({})(,|$)')", etcd_values::HTTP2_CIPHER_SUITES.join("|"))
}

/// Desired state of an EtcdadmConfig: how a Machine becomes an etcd member. Fields have the names that they have in EKS
/// Anywhere's EtcdadmConfig.
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
    /// Users to create on the machine. Not with `cloudInitConfig.modules: WriteFilesAndRunCmd`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub users: Vec<User>,

    /// Whether the machine's image has etcdadm in its PATH. Defaults to true without `etcdadmInstallCommands`, and to
    /// false with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcdadm_builtin: Option<bool>,

    /// Commands that install etcdadm on the machine if its image does not have it. They run after `preEtcdadmCommands`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub etcdadm_install_commands: Vec<String>,

    /// Commands that run before etcdadm. If one of them fails, the bootstrap fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub pre_etcdadm_commands: Vec<String>,

    /// Commands that run after etcdadm has succeeded. If one of them fails, cloud-init reports it, and the bootstrap is
    /// not undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub post_etcdadm_commands: Vec<String>,

    /// Format of the bootstrap data. Only cloud-config is supported; it is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,

    /// Files to write before any command runs. No two of them may have the same path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.all(a, self.exists_one(b, a.path == b.path))").message("two files have the same path"))]
    pub files: Vec<File>,

    /// TLS cipher suites that etcd may use, by etcd's names for them, separated by commas. If not set, etcd uses Go's
    /// default suites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Z0-9_]+(,[A-Z0-9_]+)*$')").message("must be cipher suites as etcd names them, separated by commas, such as TLS_AES_128_GCM_SHA256"))]
    #[x_kube(validation = Rule::new(http2_rule()).message("must have TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: HTTP/2 needs one of them, and etcd does not start without"))]
    pub cipher_suites: Option<String>,

    /// Settings of the machine's time service. Not with `cloudInitConfig.modules: WriteFilesAndRunCmd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntp: Option<Ntp>,

    /// Proxy for downloads on the machine, including that of etcd's release, and for containerd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,

    /// Mirror of container registries that the machine's containerd uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_mirror: Option<RegistryMirror>,

    /// Settings for bootstrap data of the format cloud-config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init_config: Option<CloudInitConfig>,

    /// etcd version, such as 3.6.16, with or without a leading `v`. If not set, an EtcdCluster uses the version in its
    /// annotation `etcdcluster.cluster.x-k8s.io/etcd-version`, which was recorded at its creation and follows the spec.
    /// Without an EtcdCluster, the default is that of the installed release of this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(VERSION_RULE).message("must be an etcd version such as 3.6.16"))]
    #[x_kube(validation = Rule::new(SAFE_VERSION_RULE).message(SAFE_VERSION))]
    pub version: Option<String>,

    /// Settings of etcd itself: database quota, timing, metrics and further flags. The machine's image needs an etcdadm
    /// of this project that knows `--etcd-flag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdSettings>,

    /// Further flags of etcdadm: a map from the name of a flag, without the leading dashes, to its value. Possible
    /// flags are data-dir, download-connect-timeout, log-level, release-sha256 and server-cert-extra-sans.
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
    /// The etcd version that the user asks for, in either of the two fields. `None`: the default applies.
    #[must_use]
    pub fn etcd_version(&self) -> Option<&str> {
        self.version.as_deref().or_else(|| self.cloud_init_config.as_ref()?.version.as_deref())
    }
}

/// Format of the bootstrap data. Only cloud-config is supported; it is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Format {
    /// cloud-init's cloud-config.
    #[default]
    #[serde(rename = "cloud-config")]
    CloudConfig,
}

/// A user to create on the machine.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.passwd) || !has(self.passwdFrom)").message("set either passwd or passwdFrom"))]
pub struct User {
    /// Login name of the user.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[a-z_][a-z0-9_-]*$')").message("must be a login name: lower-case letters, digits, - and _, and no digit or - at its beginning"))]
    pub name: String,
    /// Comment about the user, usually the full name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub gecos: Option<String>,
    /// Further groups of the user, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub groups: Option<String>,
    /// Home directory of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub home_dir: Option<String>,
    /// Whether the account is inactive. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<bool>,
    /// Login shell of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub shell: Option<String>,
    /// Hash of the user's password. Set at most one of `passwd` and `passwdFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub passwd: Option<String>,
    /// Key of a Secret that has the hash of the user's password. Set at most one of `passwd` and `passwdFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passwd_from: Option<SecretSource>,
    /// Primary group of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub primary_group: Option<String>,
    /// Whether login with a password is disabled. If not set, cloud-init's default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_password: Option<bool>,
    /// Rule for sudo, such as `ALL=(ALL) NOPASSWD:ALL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub sudo: Option<String>,
    /// Public SSH keys with which one may log in as the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ssh_authorized_keys: Vec<String>,
}

/// A file to write on the machine.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.content) != has(self.contentFrom)").message("set either content or contentFrom"))]
pub struct File {
    /// Absolute path of the file on the machine. It must not be a path that the bootstrap itself writes, such as those
    /// below `/etc/etcd/` and `/run/cluster-api/`.
    #[schemars(length(min = 2, max = 512))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("path must be absolute: it must begin with /"))]
    #[x_kube(validation = Rule::new("!self.startsWith('/etc/etcd/') && !self.startsWith('/run/cluster-api/')").message("paths below /etc/etcd/ and /run/cluster-api/ are written by the bootstrap itself"))]
    pub path: String,
    /// Owner of the file, as `user` or `user:group`. Defaults to root:root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9._-]+(:[A-Za-z0-9._-]+)?$')").message("must be a user or user:group, such as root:root"))]
    pub owner: Option<String>,
    /// Permissions of the file in octal, such as 0640. Defaults to 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^0?[0-7]{3,4}$')").message("must be permissions in octal, such as '0640'"))]
    pub permissions: Option<String>,
    /// Encoding of the content: base64, gzip, or gzip+base64 (first gzip, then Base64). If not set, the content is
    /// plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Whether to append the content to a file that exists. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<bool>,
    /// Content of the file. Set either `content` or `contentFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262144))]
    pub content: Option<String>,
    /// Key of a Secret that has the content of the file. Set either `content` or `contentFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_from: Option<SecretSource>,
}

/// Encoding of the content: base64, gzip, or gzip+base64 (first gzip, then Base64). If not set, the content is plain
/// text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Encoding {
    /// Base64.
    #[serde(rename = "base64")]
    Base64,
    /// Compressed by gzip.
    #[serde(rename = "gzip")]
    Gzip,
    /// Compressed by gzip, and then encoded in Base64.
    #[serde(rename = "gzip+base64")]
    GzipBase64,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretSource {
    /// Secret and key that have the value. The Secret is in the namespace of the config.
    pub secret: SecretKey,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the data of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Settings of the machine's time service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ntp {
    /// Time servers to ask: host names or IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub servers: Vec<String>,
    /// Whether the time service runs. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Settings of a proxy.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.httpProxy) || has(self.httpsProxy)").message("set httpProxy or httpsProxy"))]
pub struct Proxy {
    /// URL of the proxy for http, such as `http://proxy:3128`. Set at least one of `httpProxy` and `httpsProxy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9.:/@%_\[\]-]+$')").message("must be the URL of a proxy, such as http://proxy.example:3128"))]
    pub http_proxy: Option<String>,
    /// URL of the proxy for https. Set at least one of `httpProxy` and `httpsProxy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9.:/@%_\[\]-]+$')").message("must be the URL of a proxy, such as http://proxy.example:3128"))]
    pub https_proxy: Option<String>,
    /// Hosts, domains and networks that are reached directly, without the proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub no_proxy: Vec<String>,
}

/// Mirror of container registries.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryMirror {
    /// Host of the mirror, with a port and a path if needed, and without a scheme, such as
    /// `mirror.example:5000/v2/all`.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9.:/_\[\]-]+$') && !self.contains('://')").message("must be a host with a port and a path if needed, and without a scheme, such as mirror.example:5000/v2/all"))]
    pub endpoint: String,
    /// CA certificate of the mirror, in PEM format.
    #[serde(default, rename = "caCert", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca_cert: Option<String>,
}

/// Settings for bootstrap data of the format cloud-config.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitConfig {
    /// etcd version, such as 3.6.16. Same as `version` one level up; set only one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new(VERSION_RULE).message("must be an etcd version such as 3.6.16"))]
    #[x_kube(validation = Rule::new(SAFE_VERSION_RULE).message(SAFE_VERSION))]
    pub version: Option<String>,
    /// URL from which the machine downloads etcd if its image does not have the wanted version. Defaults to GitHub's
    /// releases of etcd.
    #[serde(default, rename = "etcdReleaseURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^https?://[^\s]+$')").message("must be an http or https URL"))]
    pub etcd_release_url: Option<String>,
    /// Directory for etcd's programs on the machine. Defaults to /opt/bin/.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^/[^\s]*$')").message("must be an absolute path without spaces"))]
    pub install_dir: Option<String>,
    /// Modules of cloud-init that the bootstrap data may use. All: all modules that the spec needs.
    /// WriteFilesAndRunCmd: only `write_files` and `runcmd`, in the simple form that the docker infrastructure provider
    /// understands. Defaults to All.
    #[serde(default)]
    pub modules: CloudInitModules,
}

/// Modules of cloud-init that the bootstrap data may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CloudInitModules {
    /// All modules that the spec needs: the default.
    #[default]
    All,
    /// Only `write_files` and `runcmd`, in the simple form that the docker infrastructure provider understands.
    WriteFilesAndRunCmd,
}

/// Observed state of an EtcdadmConfig. It follows both of Cluster API's bootstrap contracts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdadmConfigStatus {
    /// Whether the bootstrap data exists. Part of version v1beta1 of Cluster API's contract.
    #[serde(default)]
    pub ready: bool,
    /// Progress of the initialization. Part of version v1beta2 of Cluster API's contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Name of the Secret with the bootstrap data (key `value`) and its format (key `format`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions of the EtcdadmConfig, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Progress of the initialization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// Whether the bootstrap data exists.
    #[serde(default)]
    pub data_secret_created: bool,
}

/// Desired state of an EtcdadmConfigTemplate.
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
    /// Metadata and spec of the EtcdadmConfigs that Cluster API clones from this template.
    pub template: EtcdadmConfigTemplateResource,
}

/// Metadata and spec of a cloned EtcdadmConfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EtcdadmConfigTemplateResource {
    /// Labels and annotations of the cloned EtcdadmConfigs.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// Spec of the cloned EtcdadmConfigs.
    #[serde(default)]
    pub spec: EtcdadmConfigSpec,
}
