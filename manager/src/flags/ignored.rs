//! Flags of Cluster API's managers that have no effect here. They are accepted so that a configuration for all
//! providers, such as that of cluster-api-operator, works for this one without a change. Each is reported in the log.

use super::values;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// The form of a value. A wrong value is refused although it would change nothing.
#[derive(Clone, Copy)]
enum Form {
    Address,
    Boolean,
    Duration,
    FeatureGates,
    Number,
    Port,
    Text,
}

pub(super) const NO_WEBHOOKS: &str = "this manager serves no webhooks";
pub(super) const NO_LIMIT: &str = "requests are not limited: the API server's priority and fairness does that";
pub(super) const NO_MIGRATION: &str = "there is no migration of CRDs";
pub(super) const NO_WORKLOAD: &str =
    "this manager keeps no clients of workload clusters: it reads one ConfigMap there, when endpoints change";
pub(super) const NO_PROFILER: &str = "there is no profiler";
pub(super) const OTHER_LOGS: &str = "logs are written at once, to standard error";

/// Name, form of the value, and why it has no effect.
const IGNORED: [(&str, Form, &str); 24] = [
    ("bootstrap-token-ttl", Form::Duration, "etcd's machines have no bootstrap tokens"),
    ("clustercache-client-burst", Form::Number, NO_WORKLOAD),
    ("clustercache-client-qps", Form::Number, NO_WORKLOAD),
    ("clustercache-concurrency", Form::Number, NO_WORKLOAD),
    ("contention-profiling", Form::Boolean, NO_PROFILER),
    ("feature-gates", Form::FeatureGates, "there are no feature gates"),
    ("kube-api-burst", Form::Number, NO_LIMIT),
    ("kube-api-qps", Form::Number, NO_LIMIT),
    ("kubeadmconfig-concurrency", Form::Number, "KubeadmConfigs are not reconciled here"),
    ("leader-election-id", Form::Text, "the lease has a fixed name, which its permission is for"),
    ("log-flush-frequency", Form::Text, OTHER_LOGS),
    ("log-json-info-buffer-size", Form::Text, OTHER_LOGS),
    ("log-json-split-stream", Form::Boolean, OTHER_LOGS),
    ("log-text-info-buffer-size", Form::Text, OTHER_LOGS),
    ("log-text-split-stream", Form::Boolean, OTHER_LOGS),
    ("profiler-address", Form::Address, NO_PROFILER),
    ("skip-crd-migration-phases", Form::Text, NO_MIGRATION),
    ("sync-period", Form::Duration, "changes are watched, and every wait has a time of its own"),
    ("vmodule", Form::Text, "give --log-level a level for each module"),
    ("webhook-cert-dir", Form::Text, NO_WEBHOOKS),
    ("webhook-cert-name", Form::Text, NO_WEBHOOKS),
    ("webhook-host", Form::Text, NO_WEBHOOKS),
    ("webhook-key-name", Form::Text, NO_WEBHOOKS),
    ("webhook-port", Form::Port, NO_WEBHOOKS),
];

/// The flags without effect that were given, each with the reason why it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(pub Vec<(String, &'static str)>);

/// Whether a flag is one of those without effect.
pub(super) fn is_ignored(flag: &str) -> bool {
    IGNORED.iter().any(|(name, ..)| *name == flag)
}

impl Args for Ignored {
    fn augment_args(command: Command) -> Command {
        IGNORED.iter().fold(command, |command, (name, form, why)| {
            let argument = Arg::new(*name).long(*name).value_name("VALUE").help(*why).value_parser(parser(*form));
            let argument = argument.help_heading("Accepted without effect");
            let bare = matches!(form, Form::Boolean);
            command.arg(if bare { argument.num_args(0..=1).default_missing_value("true") } else { argument })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = IGNORED.iter().filter(|(name, ..)| matches.value_source(name) == Some(ValueSource::CommandLine));
        Ok(Self(given.map(|(name, _, why)| ((*name).to_owned(), *why)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn parser(form: Form) -> ValueParser {
    match form {
        Form::Address => ValueParser::from(values::address),
        Form::Boolean => ValueParser::from(values::boolean),
        Form::Duration => ValueParser::from(values::duration),
        Form::FeatureGates => ValueParser::from(values::feature_gates),
        Form::Number => ValueParser::from(values::number),
        Form::Port => ValueParser::from(|text: &str| text.parse::<u16>().map_err(|_| "expected a port")),
        Form::Text => ValueParser::string(),
    }
}
