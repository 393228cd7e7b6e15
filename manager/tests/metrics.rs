//! What is installed for metrics fits together: the manager's flags, ports and roles, and the configuration of
//! Prometheus.

use clap::Parser;
use controller_support::Shutdown;
use kube::{Client, Config};
use manager::diagnostics::Diagnostics;
use manager::flags::Flags;
use manager::logs;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

fn parse(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The sample uses only what is in the Secret that the manager keeps.
#[test]
fn the_sample_for_etcds_own_metrics_uses_the_secret_that_is_kept() {
    let sample = parse("prometheus/samples/etcd-scrape-config.yaml");
    let tls = &sample["spec"]["tlsConfig"];
    let secret = api::names::metrics_client_secret("demo");
    for (selector, key) in
        [(&tls["ca"]["secret"], "ca.crt"), (&tls["cert"]["secret"], "tls.crt"), (&tls["keySecret"], "tls.key")]
    {
        assert_eq!((selector["name"].as_str(), selector["key"].as_str()), (Some(secret.as_str()), Some(key)));
    }
    let targets = texts(&sample["spec"]["staticConfigs"][0]["targets"]);
    let port = format!(":{}", api::names::CLIENT_PORT);
    assert!(!targets.is_empty() && targets.iter().all(|target| target.ends_with(&port)), "{targets:?}");
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_sequence().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn an_installed_manager_shows_its_metrics_to_those_who_may_read_them() {
    let deployment = parse("manager/manager.yaml");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let flags = Flags::try_parse_from([vec!["manager"], texts(&container["args"])].concat()).unwrap();
    let ports = container["ports"].as_sequence().unwrap();
    let ports = ports.iter().map(|port| (port["name"].as_str().unwrap(), port["containerPort"].as_u64().unwrap()));
    let ports: BTreeMap<&str, u64> = ports.collect();

    let plain = flags.plain();
    let [(_, health, paths)] = plain.as_slice() else { panic!("{plain:?}") };
    assert!(paths.health && !paths.metrics, "everybody can read port 9440");
    assert_eq!(u64::from(health.port()), ports["health"]);
    assert_eq!(flags.secure().map(|address| u64::from(address.port())), Some(ports["metrics"]));
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "health", "{probe}");
    }

    let service = parse("prometheus/service.yaml");
    let port = &service["spec"]["ports"][0];
    assert!(ports.contains_key(port["targetPort"].as_str().unwrap()));
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    let monitor = parse("prometheus/service_monitor.yaml");
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], port["name"]);
    assert_eq!((&endpoint["scheme"], &endpoint["honorLabels"]), (&Value::from("https"), &Value::from(true)));
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);

    let reader = parse("rbac/metrics_reader_role.yaml");
    let rule = &reader["rules"][0];
    assert_eq!(texts(&rule["nonResourceURLs"]), [endpoint["path"].as_str().unwrap()]);
    assert_eq!(texts(&rule["verbs"]), ["get"]);
}

/// What `config/cert-manager` puts into an object of a kind: the values of its patch, by their paths.
fn patched(kind: &str) -> BTreeMap<String, Value> {
    let overlay = parse("cert-manager/kustomization.yaml");
    let patches = overlay["patches"].as_sequence().unwrap();
    let patch = patches.iter().find(|patch| patch["target"]["kind"] == kind).unwrap();
    let operations: Vec<Value> = serde_yaml::from_str(patch["patch"].as_str().unwrap()).unwrap();
    let operations = operations.into_iter();
    operations.map(|operation| (operation["path"].as_str().unwrap().to_owned(), operation["value"].clone())).collect()
}

/// The objects of a file of `config/cert-manager`, by their names.
fn of_cert_manager(file: &str) -> BTreeMap<String, Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/cert-manager").join(file);
    let text = fs::read_to_string(path).unwrap();
    let objects = text.split("\n---\n").map(|object| serde_yaml::from_str::<Value>(object).unwrap());
    objects.map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), object)).collect()
}

#[test]
fn the_certificate_of_cert_manager_is_where_the_manager_and_prometheus_look_for_it() {
    let (certificates, issuers) = (of_cert_manager("certificates.yaml"), of_cert_manager("issuers.yaml"));
    let certificate = &certificates["manager-metrics"]["spec"];
    let signed_by = |certificate: &Value| &issuers[certificate["issuerRef"]["name"].as_str().unwrap()]["spec"];
    let authority = &certificates["manager-metrics-ca"]["spec"];
    assert_eq!(signed_by(certificate)["ca"]["secretName"], authority["secretName"]);
    assert_eq!(authority["isCA"], true);
    assert!(signed_by(authority)["selfSigned"].is_mapping());

    let manager = patched("Deployment");
    let of_pod = |end: &str| &manager[&format!("/spec/template/spec/{end}")];
    let (volume, mount) = (&of_pod("volumes")[0], &of_pod("containers/0/volumeMounts")[0]);
    assert_eq!(volume["secret"]["secretName"], certificate["secretName"]);
    assert_eq!(mount["name"], volume["name"]);
    let flags = Flags::try_parse_from(["manager", of_pod("containers/0/args/-").as_str().unwrap()]).unwrap();
    assert_eq!(flags.diagnostics_cert_dir.as_deref(), mount["mountPath"].as_str().map(Path::new));

    let tls = &patched("ServiceMonitor")["/spec/endpoints/0/tlsConfig"];
    assert_eq!(tls["ca"]["secret"]["name"], certificate["secretName"]);
    assert_eq!(tls["ca"]["secret"]["key"], "ca.crt");
    assert!(tls["insecureSkipVerify"].is_null());
    let service = parse("prometheus/service.yaml");
    let namespace = parse("cert-manager/kustomization.yaml");
    let name =
        format!("{}.{}.svc", service["metadata"]["name"].as_str().unwrap(), namespace["namespace"].as_str().unwrap());
    assert_eq!(tls["serverName"], *name);
    assert_eq!(texts(&certificate["dnsNames"]), [name]);
}

/// The CA that stays when certificates are renewed.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
}

impl Authority {
    fn new() -> Self {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        Self { issuer: Issuer::new(params, key), roots }
    }

    /// Writes a new certificate for a name where the manager reads it, as kubelet does: a link points to the present
    /// folder, and is replaced atomically. Returns the certificate.
    fn renew(&self, name: &str, mount: &Path) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let data = tempfile::tempdir_in(mount).unwrap().keep();
        fs::write(data.join("tls.crt"), certificate.pem()).unwrap();
        fs::write(data.join("tls.key"), key.serialize_pem()).unwrap();
        symlink(data, mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        certificate.der().clone()
    }

    /// The certificate that the server shows, if Prometheus would accept it: it is for this name, and of this CA.
    async fn shown(&self, address: SocketAddr, name: &str) -> CertificateDer<'static> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(self.roots.clone()).with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart() {
    let monitor = patched("ServiceMonitor");
    let name = monitor["/spec/endpoints/0/tlsConfig"]["serverName"].as_str().unwrap();
    let (authority, mount) = (Authority::new(), tempfile::tempdir().unwrap());
    let first = authority.renew(name, mount.path());
    for file in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(file), mount.path().join(file)).unwrap();
    }
    let folder = format!("--diagnostics-cert-dir={}", mount.path().display());
    let flags = Flags::try_parse_from(["manager", folder.as_str()]).unwrap();
    // The server does not ask about a caller before the TLS connection exists.
    let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let shown = (Arc::default(), logs::start(&flags).unwrap());
    let server = Diagnostics::new(client, shown, &flags.tls(), flags.diagnostics_cert_dir.as_deref()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, shutdown) = Shutdown::new();
    let serving = tokio::spawn(server.serve(listener, shutdown));
    assert_eq!(authority.shown(address, name).await, first);

    let second = authority.renew(name, mount.path());
    assert_eq!(authority.shown(address, name).await, first, "it is read once a minute");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let renewed = async {
        while authority.shown(address, name).await != second {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), renewed).await.expect("the earlier certificate is still shown");
    assert!(!serving.is_finished());
}
