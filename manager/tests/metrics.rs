//! What is installed for metrics fits together: the manager's flags, ports, roles, and what Prometheus is told.

use clap::Parser;
use manager::flags::Flags;
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn parse(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// With what is in the Secret that the manager keeps, and nothing else.
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
