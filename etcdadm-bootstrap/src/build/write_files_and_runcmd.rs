//! cloud-config for Cluster API's docker provider, whose interpreter knows two modules and no templates, and runs every
//! command in a separate shell.

use super::commands::{in_braces, restart_containerd, text, user_commands};
use super::yaml::Yaml;
use super::{Bootstrap, Format, InvalidField, STATE_DIR, SUCCESS_SENTINEL, cloud_config, etcdadm, files, proxy};

/// The provider reads line by line, with at most 64 KiB in each line.
const LONGEST_LINE: usize = 64 * 1024 - 1;

pub(super) struct WriteFilesAndRunCmd;

impl Format for WriteFilesAndRunCmd {
    fn render(&self, bootstrap: &Bootstrap<'_>) -> Result<String, InvalidField> {
        let mut yaml = Yaml::new("#cloud-config\n\n", false);
        // The provider needs about 0.7 s for each file. It logs commands, but not the content of files.
        let (authority, take_apart) = files::authority_in_one(bootstrap);
        let mut files = files::all(bootstrap, vec![authority])?;
        for file in &mut files {
            // The provider puts the path into a shell command as it is.
            if !file.path.chars().all(|c| c.is_ascii_alphanumeric() || "@%_+=:,./-".contains(c)) {
                let problem = "may hold only letters, digits and @%_+=:,./- with cloudInitConfig.modules: \
                               WriteFilesAndRunCmd";
                return Err(InvalidField::new(format!("{}.path", file.field), problem));
            }
            if file.gzip {
                let problem = "cannot be gzip with cloudInitConfig.modules: WriteFilesAndRunCmd; give the file \
                               uncompressed";
                return Err(InvalidField::new(format!("{}.encoding", file.field), problem));
            }
            // No module makes users, so the owner has to be in the image.
            file.after_users = false;
        }
        cloud_config::write_files(&mut yaml, &files);
        run_commands(&mut yaml, bootstrap, &take_apart)?;
        Ok(yaml.finish())
    }
}

fn run_commands(yaml: &mut Yaml, bootstrap: &Bootstrap<'_>, first: &str) -> Result<(), InvalidField> {
    let (before, after) = user_commands(bootstrap)?;
    let export = proxy::export(bootstrap)?;
    let with_proxy = |command: &str| match &export {
        Some(export) => format!("{export}\n{command}"),
        None => command.to_owned(),
    };
    // With the last `:`, a false condition at the end of a command does not make the command fail. The same holds in
    // cloud-init, where all commands are one script.
    let by_itself = |command: &str| format!("set -e\n{}\n:", with_proxy(&in_braces(command)));

    yaml.section(0, "runcmd");
    // Keeps the provider from running everything again after the provider was restarted.
    item(yaml, "", &format!("echo started > {STATE_DIR}/capd.bootstrap.started && {first}"))?;
    if let Some(restart) = restart_containerd(bootstrap) {
        item(yaml, "", restart)?;
    }
    for command in &before {
        item(yaml, &command.field, &by_itself(command.text))?;
    }
    let etcdadm = etcdadm::command(bootstrap)?;
    item(yaml, "spec.etcdadmArgs", &with_proxy(&format!("test -e {SUCCESS_SENTINEL} || {{ {etcdadm}; }}")))?;
    for command in &after {
        item(yaml, &command.field, &by_itself(command.text))?;
    }
    Ok(())
}

fn item(yaml: &mut Yaml, field: &str, command: &str) -> Result<(), InvalidField> {
    let before = yaml.len();
    yaml.item(0, &text(command));
    let length = yaml.len() - before;
    if length > LONGEST_LINE {
        let problem = format!(
            "gives a line of {length} bytes; with cloudInitConfig.modules: WriteFilesAndRunCmd a line may have \
             {LONGEST_LINE}. Put it into a file"
        );
        return Err(InvalidField::new(field, problem));
    }
    Ok(())
}
