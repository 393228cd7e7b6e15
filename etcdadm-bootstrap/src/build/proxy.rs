//! The proxy: for the commands that run during the bootstrap, and for containerd.

use super::files::WriteFile;
use super::{Bootstrap, InvalidField, Role, shell};
use api::EtcdadmConfigSpec;
use api::etcdadm_config::Proxy;

/// Hosts that are never reached through a proxy.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Drop-in that gives containerd the proxy.
pub(super) fn file(spec: &EtcdadmConfigSpec) -> Result<Option<WriteFile>, InvalidField> {
    let Some(proxy) = &spec.proxy else { return Ok(None) };
    let lines: String = variables(proxy, &[])?
        .into_iter()
        .map(|(name, value)| format!("Environment={}\n", systemd_word(&format!("{name}={value}"))))
        .collect();
    let path = "/etc/systemd/system/containerd.service.d/http-proxy.conf";
    // Readable by root only, because the URL of a proxy may contain a password.
    Ok(Some(WriteFile::ours(path, "0600", format!("[Service]\n{lines}"))))
}

/// Command that sets the proxy for the commands after it in the same shell.
pub(super) fn export(bootstrap: &Bootstrap<'_>) -> Result<Option<String>, InvalidField> {
    let Some(proxy) = &bootstrap.spec.proxy else { return Ok(None) };
    let members: Vec<&str> = match bootstrap.role {
        Role::Init { .. } => Vec::new(),
        Role::Join { client_urls, .. } => client_urls.iter().filter_map(|url| host(url)).collect(),
    };
    let words: Vec<String> = variables(proxy, &members)?
        .into_iter()
        // Some programs read these names in upper case, and others in lower case.
        .flat_map(|(name, value)| [(name.to_owned(), value.clone()), (name.to_lowercase(), value)])
        .map(|(name, value)| shell::word(&format!("{name}={value}")))
        .collect();
    Ok(Some(format!("export {}", words.join(" "))))
}

fn variables(proxy: &Proxy, members: &[&str]) -> Result<Vec<(&'static str, String)>, InvalidField> {
    let mut direct: Vec<&str> = Vec::new();
    for (index, entry) in proxy.no_proxy.iter().enumerate() {
        if entry.is_empty() || !entry.chars().all(|c| c.is_ascii_graphic() && c != ',') {
            let problem = "must be one host, domain or network: no spaces, commas or characters beyond ASCII";
            return Err(InvalidField::new(format!("spec.proxy.noProxy[{index}]"), problem));
        }
        direct.push(entry);
    }
    for known in LOCAL.iter().chain(members) {
        if !direct.contains(known) {
            direct.push(known);
        }
    }
    let given = [("HTTP_PROXY", &proxy.http_proxy), ("HTTPS_PROXY", &proxy.https_proxy)];
    let mut variables: Vec<_> =
        given.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.clone()))).collect();
    variables.push(("NO_PROXY", direct.join(",")));
    Ok(variables)
}

/// The host of a URL, an IPv6 address without its brackets.
fn host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    match authority.strip_prefix('[') {
        Some(bracketed) => Some(bracketed.split_once(']')?.0),
        None => Some(authority.split_once(':').map_or(authority, |(host, _)| host)),
    }
}

/// A quoted word of a unit file, in which `%` begins a specifier.
fn systemd_word(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '%' => "%%".to_owned(),
            _ => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_urls() {
        assert_eq!(host("https://10.0.0.1:2379"), Some("10.0.0.1"));
        assert_eq!(host("https://[fd00::1]:2379"), Some("fd00::1"));
        assert_eq!(host("https://etcd.example/x"), Some("etcd.example"));
        assert_eq!(host("nonsense"), None);
    }

    #[test]
    fn a_unit_file_takes_every_value_literally() {
        assert_eq!(systemd_word(r#"A=b%20"\c"#), r#""A=b%%20\"\\c""#);
    }
}
