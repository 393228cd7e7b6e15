//! Secrets that people make.

use super::case::{Case, says};
use crate::bring_up::PATIENCE;
use anyhow::{Context, Result, ensure};
use e2e::apply::apply_object;
use e2e::bed::Bed;
use e2e::until::until;
use serde_json::{Value, json};

/// A CA such as people have: RSA, with its key in the format that kubeadm writes.
const CERT: &str = include_str!("../../../../etcdadm/src/pki/testdata/pkcs1-rsa.crt");
const KEY: &str = include_str!("../../../../etcdadm/src/pki/testdata/pkcs1-rsa.key");
/// The key of another certificate.
const OTHER_KEY: &str = include_str!("../../../../etcdadm/src/pki/testdata/sec1-p256.key");

const AUTHORITY: &str = "demo-managed-etcd";

impl Case<'_> {
    async fn secret(&self, bed: &Bed, name: &str, values: &Value) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": self.handle.namespace}, "stringData": values,
        });
        apply_object(&bed.client(), &secret).await?;
        Ok(())
    }
}

/// A good CA is used, and stays the user's: its Secret is still there when the cluster is gone.
pub(super) async fn authority_of_the_user(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "own-authority").await?;
    case.secret(bed, AUTHORITY, &json!({"tls.crt": CERT, "tls.key": KEY})).await?;
    case.apply("EtcdCluster", |_| {}).await?;
    case.comes_up().await?;
    ensure!(case.handle.secret("demo-etcd", "tls.crt").await? == CERT, "the control plane has another CA");
    bed.exactly(&[(&case.handle, 1)]).await?;
    case.handle.delete("Cluster", "demo").await?;
    until("the Cluster and its etcd are gone", PATIENCE, async || {
        let left = [case.handle.names("Cluster", "").await?, case.handle.names("EtcdCluster", "").await?].concat();
        Ok(left.is_empty().then_some(()))
    })
    .await?;
    until("only the user's Secret is left", PATIENCE, async || {
        let left = case.handle.secret_names().await?;
        ensure!(left == [AUTHORITY], "left are {left:?}");
        Ok(Some(()))
    })
    .await?;
    ensure!(case.handle.secret(AUTHORITY, "tls.key").await? == KEY, "the user's Secret was changed");
    Ok(())
}

pub(super) async fn authority_that_is_none(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "bad-authority").await?;
    case.secret(bed, AUTHORITY, &json!({"tls.crt": CERT})).await?;
    case.apply("EtcdCluster", |_| {}).await?;
    for (values, part) in [
        (json!({"tls.crt": CERT}), "has no key tls.key"),
        (json!({"tls.crt": CERT, "tls.key": "nonsense"}), "tls.key is not a private key in PEM"),
        (json!({"tls.crt": CERT, "tls.key": OTHER_KEY}), "tls.key does not belong to tls.crt"),
        (json!({"tls.crt": KEY, "tls.key": KEY}), "tls.crt is not a certificate in PEM"),
    ] {
        case.secret(bed, AUTHORITY, &values).await?;
        until(format!("it is said that {part}"), PATIENCE, async || {
            says(&case.until_etcd_says("SecretInvalid").await?, &["Secret demo-managed-etcd", part])?;
            Ok(Some(()))
        })
        .await?;
        case.nothing_was_made().await?;
    }
    case.secret(bed, AUTHORITY, &json!({"tls.crt": CERT, "tls.key": KEY})).await?;
    case.comes_up().await
}

/// The Machine waits for its bootstrap data, and a condition names the Secret and the key that are missing.
pub(super) async fn file_without_its_secret(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "file-secret").await?;
    case.apply("EtcdCluster", |etcd| {
        let source = json!({"secret": {"name": "files", "key": "motd"}});
        etcd["spec"]["etcdadmConfigSpec"]["files"] = json!([{"path": "/etc/motd", "contentFrom": source}]);
    })
    .await?;
    let until_config_says = async |part: &str| {
        until(format!("the config says {part}"), PATIENCE, async || {
            let config = case.handle.api("EtcdadmConfig").get("demo-etcd-0").await?;
            let conditions = config.data.pointer("/status/conditions").and_then(Value::as_array);
            let data = conditions.into_iter().flatten().find(|condition| condition["type"] == "DataSecretAvailable");
            let data = data.context("no condition yet")?;
            ensure!(data["status"] == "False" && data["reason"] == "WaitingForFileSecret", "{data}");
            says(data["message"].as_str().unwrap_or_default(), &["spec.files[0].contentFrom.secret", part])?;
            Ok(Some(()))
        })
        .await
    };
    until_config_says("Secret files does not exist").await?;
    case.secret(bed, "files", &json!({"other": "x"})).await?;
    until_config_says("Secret files has no key motd").await?;
    ensure!(case.handle.secrets().get_opt("demo-etcd-0").await?.is_none(), "there are bootstrap data");
    case.secret(bed, "files", &json!({"motd": "hello"})).await?;
    case.comes_up().await?;
    let machine = bed.machines.get(&case.handle.namespace, "demo-etcd-0")?;
    let motd = machine.exec(&["cat", "/etc/motd"])?;
    ensure!(motd.stdout == b"hello", "{motd:?}");
    Ok(())
}
