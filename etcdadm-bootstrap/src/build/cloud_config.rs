//! cloud-config for cloud-init as distributions ship it.

use super::files::WriteFile;
use super::yaml::Yaml;
use super::{Bootstrap, Format, InvalidField, commands, etcdadm, files, proxy, without_nul};
use api::etcdadm_config::{Ntp, User};

/// Makes cloud-init treat the document as a Jinja template. This is how commands read instance data.
const HEADER: &str = "## template: jinja\n#cloud-config\n\n";

/// A day in the past, which makes an account expired. (Some tools treat the first of January as "never".)
const EXPIRED: &str = "1970-01-02";

pub(super) struct CloudConfig;

impl Format for CloudConfig {
    fn render(&self, bootstrap: &Bootstrap<'_>) -> Result<String, InvalidField> {
        let mut yaml = Yaml::new(HEADER, true);
        write_files(&mut yaml, &files::all(bootstrap, files::authority(bootstrap))?);
        run_commands(&mut yaml, bootstrap)?;
        if let Some(ntp) = &bootstrap.spec.ntp {
            time_servers(&mut yaml, ntp)?;
        }
        if !bootstrap.spec.users.is_empty() {
            users(&mut yaml, bootstrap)?;
        }
        Ok(yaml.finish())
    }
}

/// Files in the form that cloud-init and the docker provider share.
pub(super) fn write_files(yaml: &mut Yaml, files: &[WriteFile]) {
    yaml.section(0, "write_files");
    for file in files {
        yaml.string(0, true, "path", &file.path);
        yaml.string(2, false, "owner", &file.owner);
        yaml.string(2, false, "permissions", &file.permissions);
        if file.append {
            yaml.boolean(2, "append", true);
        }
        if file.after_users {
            yaml.boolean(2, "defer", true);
        }
        yaml.string(2, false, "encoding", if file.gzip { "gz+base64" } else { "base64" });
        yaml.base64(2, "content", &file.content);
    }
}

/// cloud-init makes one script of all commands, so the first line applies to all of them.
fn run_commands(yaml: &mut Yaml, bootstrap: &Bootstrap<'_>) -> Result<(), InvalidField> {
    let (before, after) = commands::user_commands(bootstrap)?;
    yaml.section(0, "runcmd");
    yaml.item(0, &commands::text("set -e"));
    if let Some(export) = proxy::export(bootstrap)? {
        yaml.item(0, &commands::text(&export));
    }
    if let Some(restart) = commands::restart_containerd(bootstrap) {
        yaml.item(0, &commands::text(restart));
    }
    for command in &before {
        yaml.item(0, &commands::templated(command));
    }
    yaml.item(0, &commands::text(&etcdadm::command(bootstrap)?));
    for command in &after {
        yaml.item(0, &commands::templated(command));
    }
    Ok(())
}

fn time_servers(yaml: &mut Yaml, ntp: &Ntp) -> Result<(), InvalidField> {
    yaml.section(0, "ntp");
    yaml.boolean(2, "enabled", ntp.enabled.unwrap_or(true));
    let mut servers: Vec<&String> = Vec::new();
    for (index, server) in ntp.servers.iter().enumerate() {
        // The server becomes a word in the time service's configuration.
        if server.is_empty() || !server.chars().all(|c| c.is_ascii_alphanumeric() || ".:-_".contains(c)) {
            let problem = "must be a host name or an IP address";
            return Err(InvalidField::new(format!("spec.ntp.servers[{index}]"), problem));
        }
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    if !servers.is_empty() {
        yaml.section(2, "servers");
        for server in servers {
            yaml.item(2, &commands::text(server));
        }
    }
    Ok(())
}

fn users(yaml: &mut Yaml, bootstrap: &Bootstrap<'_>) -> Result<(), InvalidField> {
    yaml.section(0, "users");
    for (index, user) in bootstrap.spec.users.iter().enumerate() {
        let field = |name: &str| format!("spec.users[{index}].{name}");
        yaml.string(0, true, "name", &user.name);
        let texts = [
            ("gecos", "gecos", &user.gecos),
            ("groups", "groups", &user.groups),
            ("homeDir", "homedir", &user.home_dir),
            ("shell", "shell", &user.shell),
            ("primaryGroup", "primary_group", &user.primary_group),
            ("sudo", "sudo", &user.sudo),
        ];
        for (name, key, value) in texts {
            if let Some(value) = value {
                yaml.string(2, false, key, without_nul(|| field(name), value)?);
            }
        }
        if let Some(hash) = password(bootstrap, user, &field)? {
            yaml.string(2, false, "passwd", &hash);
        }
        if let Some(lock) = user.lock_password {
            yaml.boolean(2, "lock_passwd", lock);
        }
        if user.inactive == Some(true) {
            yaml.string(2, false, "expiredate", EXPIRED);
        }
        if !user.ssh_authorized_keys.is_empty() {
            yaml.section(2, "ssh_authorized_keys");
            for key in &user.ssh_authorized_keys {
                yaml.item(2, &commands::text(key));
            }
        }
    }
    Ok(())
}

/// The hash of the user's password. A hash from a Secret may end in a line break, as files do.
fn password(
    bootstrap: &Bootstrap<'_>,
    user: &User,
    field: &impl Fn(&str) -> String,
) -> Result<Option<String>, InvalidField> {
    let (field, hash) = match (&user.passwd, &user.passwd_from) {
        (None, None) => return Ok(None),
        (Some(hash), None) => (field("passwd"), hash.as_str()),
        (None, Some(source)) => {
            let value = bootstrap.secrets.get(source).unwrap_or_default();
            (field("passwdFrom"), std::str::from_utf8(value).unwrap_or("\0").trim_end_matches(['\r', '\n']))
        }
        (Some(_), Some(_)) => return Err(InvalidField::new(field("passwd"), "set either passwd or passwdFrom")),
    };
    if hash.is_empty() || !hash.chars().all(|c| c.is_ascii_graphic() && c != ':') {
        return Err(InvalidField::new(field, "must be the hash of a password, as `openssl passwd -6` prints it"));
    }
    Ok(Some(hash.to_owned()))
}
