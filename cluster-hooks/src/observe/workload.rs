//! The only read from the Kubernetes cluster itself: the configuration that kubeadm keeps there for machines that join.

use crate::observation::{Joining, KUBEADM_CONFIG, joining};
use api::endpoints::EndpointList;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use std::time::Duration;
use tokio::time::timeout;

/// The timeout of everything together, because the reconcile waits for it.
const ANSWER: Duration = Duration::from_secs(5);
/// The one message for every failure while the API server is away. Behind a load balancer, each request may fail in a
/// different way. If each failure had its own message, each would change the condition, and the change would trigger
/// the next reconcile and the next request.
const AWAY: &str = "its API server does not answer, or cannot serve";

/// Asks with the kubeconfig that the control plane has published. One request.
pub(super) async fn read(kubeconfig: &str) -> Joining {
    match timeout(ANSWER, ask(kubeconfig)).await {
        Ok(Ok(Some(map))) => joining(&map),
        // No machine can join without this ConfigMap.
        Ok(Ok(None)) => Joining::With(EndpointList::new()),
        Ok(Err(why)) => Joining::Unknown(why),
        Err(_) => Joining::Unknown(AWAY.to_owned()),
    }
}

async fn ask(kubeconfig: &str) -> Result<Option<ConfigMap>, String> {
    let maps: Api<ConfigMap> = Api::namespaced(client(kubeconfig).await?, "kube-system");
    maps.get_opt(KUBEADM_CONFIG).await.map_err(|error| answer(&error))
}

/// Describes a failed request, for people. It contains nothing of the body of a response. Otherwise, a person who may
/// write the Secret could enter any address in the kubeconfig, and read in the condition what it answers to this
/// process.
fn answer(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code < 500 && status.code != TOO_MANY => {
            let is_word = status.reason.chars().all(|c| c.is_ascii_alphabetic());
            let reason = if is_word { status.reason.as_str() } else { "" };
            format!("its API server answers {} {reason}", status.code).trim_end().to_owned()
        }
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            "its API server answers something else than was asked for".to_owned()
        }
        _ => AWAY.to_owned(),
    }
}

/// The code of "too many requests".
const TOO_MANY: u16 = 429;

async fn client(kubeconfig: &str) -> Result<Client, String> {
    let invalid = |why: &str| format!("the kubeconfig cannot be used: {why}");
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|_| invalid(NOT_READABLE))?;
    if !is_plain(&kubeconfig) {
        return Err(invalid(NOT_PLAIN));
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.map_err(|_| invalid(INCOMPLETE))?;
    Client::try_from(config).map_err(|_| invalid(INCOMPLETE))
}

/// This leaves out the parser's message, which shows the lines around an error, and with them secret values.
const NOT_READABLE: &str = "it cannot be read, as YAML or as a kubeconfig";
const INCOMPLETE: &str = "the context that it names, or a certificate or key of that, is missing or cannot be read";
const NOT_PLAIN: &str = "it may name only an https server with verified TLS, and have only a token, or certificates, in itself: no files, programs or proxy";

/// Whether the kubeconfig itself contains all that is needed, for a server whose certificate is verified. A person who
/// may write the Secret must not be able to make this process run a program, disclose one of its files, or send
/// requests over plain HTTP.
fn is_plain(kubeconfig: &Kubeconfig) -> bool {
    let mut users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let mut clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let is_plain = users.all(|user| {
        let files = [&user.token_file, &user.client_certificate, &user.client_key];
        user.exec.is_none() && user.auth_provider.is_none() && files.iter().all(|file| file.is_none())
    });
    is_plain
        && clusters.all(|cluster| {
            cluster.certificate_authority.is_none()
                && cluster.proxy_url.is_none()
                && cluster.insecure_skip_tls_verify != Some(true)
                && cluster.server.as_ref().is_some_and(|server| server.starts_with("https://"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    const CLUSTER: &str = "server: https://10.0.0.100:6443, certificate-authority-data: AAAA";

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Config, clusters: [{{name: demo, cluster: {{{cluster}}}}}], users: [{{name: admin, user: {{{user}}}}}], contexts: [{{name: demo, context: {{cluster: demo, user: admin}}}}], current-context: demo}}"
        )
    }

    #[test]
    fn a_kubeconfig_runs_nothing_and_reads_no_file() {
        let is_plain =
            |cluster: &str, user: &str| is_plain(&Kubeconfig::from_yaml(&kubeconfig(cluster, user)).unwrap());
        assert!(is_plain(CLUSTER, "client-certificate-data: AAAA, client-key-data: AAAA"));
        assert!(is_plain(CLUSTER, "token: secret"));
        for user in [
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}",
            "auth-provider: {name: gcp, config: {}}",
            "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
            "client-certificate: /etc/ssl/a.crt",
            "client-key: /etc/ssl/a.key",
        ] {
            assert!(!is_plain(CLUSTER, user), "{user}");
        }
        let insecure = "insecure-skip-tls-verify: true";
        for more in ["certificate-authority: /etc/ssl/ca.crt", "proxy-url: http://10.0.0.9:3128", insecure] {
            assert!(!is_plain(&format!("server: https://10.0.0.100:6443, {more}"), "token: secret"), "{more}");
        }
        for server in ["server: http://169.254.169.254", "server: 10.0.0.100:6443", "tls-server-name: demo"] {
            assert!(!is_plain(server, "token: secret"), "{server}");
        }
    }

    #[test]
    fn of_an_answer_nothing_is_said_but_code_and_reason() {
        let answered = |code: u16, reason: &str| {
            let (reason, message) = (reason.to_owned(), "hunter2".to_owned());
            answer(&kube::Error::Api(Box::new(Status { code, reason, message, ..Status::default() })))
        };
        assert_eq!(answered(403, "Forbidden"), "its API server answers 403 Forbidden");
        assert_eq!(answered(404, ""), "its API server answers 404");
        assert_eq!(answered(400, "the password is hunter2"), "its API server answers 400");
        let body = serde_json::from_str::<ConfigMap>("\"hunter2\"").unwrap_err();
        let other = answer(&kube::Error::SerdeError(body));
        assert_eq!(other, "its API server answers something else than was asked for");
        for code in [429, 500, 502, 503, 504] {
            assert_eq!(answered(code, "ServiceUnavailable"), AWAY, "the same in every look");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_asked_is_not_known_and_why() {
        let unknown = async |text: &str| match read(text).await {
            Joining::Unknown(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(unknown("nonsense").await.starts_with("the kubeconfig cannot be used"));
        let runs = kubeconfig(CLUSTER, "exec: {command: sh, interactiveMode: Never}");
        assert!(unknown(&runs).await.contains("programs"));
        // Nothing listens at this address.
        let nobody = kubeconfig("server: https://127.0.0.1:1", "token: secret");
        assert_eq!(unknown(&nobody).await, AWAY);
    }

    #[tokio::test]
    async fn of_a_kubeconfig_that_cannot_be_used_nothing_is_said() {
        let secret = "token: hunter2hunter2";
        let users = "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n";
        for text in [
            format!("{users}    {secret}\n    {secret}\n"),
            format!("{users}    token: [hunter2hunter2]\n"),
            format!("{users}    {secret}\n   username: admin\n"),
            kubeconfig(CLUSTER, "client-certificate-data: hunter2hunter2, client-key-data: hunter2hunter2"),
            kubeconfig(CLUSTER, secret).replace("current-context: demo", "current-context: hunter2"),
        ] {
            let Joining::Unknown(why) = read(&text).await else { panic!("{text}") };
            assert!(why.starts_with("the kubeconfig cannot be used: ") && !why.contains("hunter2"), "{text}: {why}");
        }
    }
}
