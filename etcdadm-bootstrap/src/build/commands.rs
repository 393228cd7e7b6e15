//! The commands that the machine runs, and what keeps a user's command from swallowing the next one.

use super::template::{self, Segment};
use super::{Bootstrap, InvalidField, without_nul};

/// Makes containerd use its new settings, on machines that have containerd.
const RESTART_CONTAINERD: &str = "if systemctl cat containerd.service >/dev/null 2>&1; then systemctl daemon-reload && \
                                  systemctl restart containerd.service; fi";

/// A user's command and the path of its field.
pub(super) struct UserCommand<'a> {
    pub field: String,
    pub text: &'a str,
}

/// The user's commands, in order: those before etcdadm, and those after it.
pub(super) fn user_commands<'a>(
    bootstrap: &Bootstrap<'a>,
) -> Result<(Vec<UserCommand<'a>>, Vec<UserCommand<'a>>), InvalidField> {
    let spec = bootstrap.spec;
    let mut before = named("spec.preEtcdadmCommands", &spec.pre_etcdadm_commands)?;
    before.extend(named("spec.etcdadmInstallCommands", &spec.etcdadm_install_commands)?);
    Ok((before, named("spec.postEtcdadmCommands", &spec.post_etcdadm_commands)?))
}

fn named<'a>(field: &str, commands: &'a [String]) -> Result<Vec<UserCommand<'a>>, InvalidField> {
    let each = commands.iter().enumerate().map(|(index, text)| {
        let field = format!("{field}[{index}]");
        without_nul(|| field.clone(), text)?;
        Ok(UserCommand { field, text })
    });
    each.collect()
}

/// The restart of containerd, if its settings have changed.
pub(super) fn restart_containerd(bootstrap: &Bootstrap<'_>) -> Option<&'static str> {
    (bootstrap.spec.proxy.is_some() || bootstrap.spec.registry_mirror.is_some()).then_some(RESTART_CONTAINERD)
}

/// A user's command in braces, with its instance data as expressions. cloud-init makes one script of all commands. In
/// braces, an open quote or a trailing `\` or `||` is a syntax error that ends the bootstrap; otherwise, it would
/// swallow the next command. Variables and the working directory still carry over, as in any cloud-config.
pub(super) fn templated(command: &UserCommand<'_>) -> Vec<Segment> {
    template::segments(&in_braces(command.text))
}

/// A user's command in braces. The `:` is for commands that consist only of a comment.
pub(super) fn in_braces(command: &str) -> String {
    format!("{{ :\n{command}\n}}")
}

/// A command of ours, for a list of segments.
pub(super) fn text(command: &str) -> [Segment; 1] {
    [Segment::Text(command.to_owned())]
}
