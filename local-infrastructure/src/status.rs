//! The status of a LocalMachine, and the transitions that are worth an event. Pure.

use crate::{
    crd::{Address, Initialization, LocalMachineStatus, conditions},
    machine::Bootstrap,
    observation::{Local, Observation},
    plan::Step,
};
use api::conditions::{Draft, from_drafts};
use controller_support::Plan;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// The status that follows from the observation. `failure`: why the machine could not be made or started.
#[must_use]
pub fn status(
    before: &LocalMachineStatus,
    generation: Option<i64>,
    observation: &Observation,
    plan: &Plan<Step>,
    failure: Option<&str>,
) -> LocalMachineStatus {
    let exists = observation.local.as_ref().is_some_and(|local| local.was_started);
    let provisioned = before.initialization.provisioned || exists;
    let addresses = match &observation.local {
        // A paused object keeps its status, even if somebody else has changed it.
        Some(local) if exists && !observation.paused => {
            local.addresses().into_iter().map(|(kind, address)| Address { kind, address }).collect()
        }
        _ => before.addresses.clone(),
    };
    let drafts = vec![ready(observation, plan, failure), bootstrap(observation, plan), paused(observation.paused)];
    LocalMachineStatus {
        ready: provisioned,
        initialization: Initialization { provisioned },
        addresses,
        conditions: from_drafts(&before.conditions, drafts, generation, &observation.now),
    }
}

fn ready(observation: &Observation, plan: &Plan<Step>, failure: Option<&str>) -> Draft {
    let not = |reason, message: &str| Draft::new(conditions::READY, false, reason, message);
    if observation.deleting {
        return not(conditions::DELETING, "");
    }
    if let Some(failure) = failure {
        return not(conditions::CREATION_FAILED, failure);
    }
    let Some(local) = &observation.local else {
        return plan.hold().map_or_else(|| not(conditions::BOOTING, ""), |hold| not(hold.reason, &hold.message));
    };
    match (local, &local.bootstrap) {
        (Local { powered_on: false, .. }, _) => not(conditions::POWERED_OFF, "The machine is switched off"),
        (Local { running: false, .. }, _) => not(conditions::NOT_RUNNING, "The machine's first process is gone"),
        (_, None) => not(conditions::BOOTING, "The bootstrap has not finished"),
        (_, Some(Bootstrap { succeeded: false, .. })) => {
            not(conditions::BOOTSTRAP_FAILED, "The bootstrap failed, see BootstrapSucceeded")
        }
        (_, Some(_)) => Draft::new(conditions::READY, true, conditions::IS_READY, ""),
    }
}

fn bootstrap(observation: &Observation, plan: &Plan<Step>) -> Draft {
    let unknown = |reason, message: &str| Draft::unknown(conditions::BOOTSTRAP_SUCCEEDED, reason, message);
    match observation.local.as_ref().map(|local| (local, &local.bootstrap)) {
        None => unknown(plan.hold().map_or(conditions::WAITING_FOR_BOOTSTRAP_DATA, |hold| hold.reason), ""),
        Some((_, None)) => unknown(conditions::BOOTING, ""),
        Some((_, Some(result))) if result.succeeded => {
            Draft::new(conditions::BOOTSTRAP_SUCCEEDED, true, conditions::SUCCEEDED, "")
        }
        Some((local, Some(result))) => {
            let message = format!("{}. The console ends with:\n{}", result.errors.join("; "), local.console_end);
            Draft::new(conditions::BOOTSTRAP_SUCCEEDED, false, conditions::BOOTSTRAP_FAILED, message)
        }
    }
}

pub(crate) fn paused(paused: bool) -> Draft {
    let reason = if paused { conditions::IS_PAUSED } else { conditions::NOT_PAUSED };
    Draft::new(conditions::PAUSED, paused, reason, "")
}

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whether it is a warning.
    pub warning: bool,
    /// Reason of the event.
    pub reason: &'static str,
    /// Its text.
    pub note: String,
}

/// What has happened between two statuses.
#[must_use]
pub fn transitions(before: &LocalMachineStatus, after: &LocalMachineStatus) -> Vec<Transition> {
    let mut found = Vec::new();
    if after.ready && !before.ready {
        let address = after.addresses.first().map_or("", |address| &address.address);
        found.push(Transition { warning: false, reason: "Created", note: format!("Created with address {address}") });
    }
    let turned = |type_: &str, reason: &str| {
        let is = |conditions: &[Condition]| conditions.iter().any(|c| c.type_ == type_ && c.reason == reason);
        (is(&after.conditions) && !is(&before.conditions))
            .then(|| after.conditions.iter().find(|c| c.type_ == type_).map(|c| c.message.clone()).unwrap_or_default())
    };
    for (type_, reason, warning) in [
        (conditions::BOOTSTRAP_SUCCEEDED, conditions::SUCCEEDED, false),
        (conditions::BOOTSTRAP_SUCCEEDED, conditions::BOOTSTRAP_FAILED, true),
        (conditions::READY, conditions::CREATION_FAILED, true),
        (conditions::READY, conditions::POWERED_OFF, true),
        (conditions::READY, conditions::NOT_RUNNING, true),
    ] {
        if let Some(message) = turned(type_, reason) {
            let note = if message.is_empty() { "The bootstrap succeeded".to_owned() } else { message };
            // The API server accepts at most 1 kB.
            found.push(Transition { warning, reason, note: note.chars().take(900).collect() });
        }
    }
    found
}

/// The last lines of a console, for a message with limited length.
#[must_use]
pub fn console_end(console: &str) -> String {
    let lines = console.lines().rev().filter(|line| !line.trim().is_empty()).take(10);
    let mut end: Vec<String> = lines.map(|line| line.chars().take(200).collect()).collect();
    end.reverse();
    end.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{complete, local};
    use api::meta::AddressType;
    use controller_support::plan::wait;
    use rstest::rstest;

    fn reason_of(status: &LocalMachineStatus, type_: &str) -> (String, String) {
        let condition = status.conditions.iter().find(|c| c.type_ == type_).expect("the condition");
        (condition.status.clone(), condition.reason.clone())
    }

    fn of(observation: &Observation, plan: &Plan<Step>) -> LocalMachineStatus {
        status(&LocalMachineStatus::default(), Some(1), observation, plan, None)
    }

    fn result(succeeded: bool) -> Option<Bootstrap> {
        Some(Bootstrap { succeeded, errors: vec!["it broke".to_owned()], milliseconds: 700 })
    }

    #[rstest]
    #[case::booting(local(), ("False", "Booting"), ("Unknown", "Booting"))]
    #[case::well(Local { bootstrap: result(true), ..local() }, ("True", "Ready"), ("True", "Succeeded"))]
    #[case::failed(
        Local { bootstrap: result(false), ..local() }, ("False", "BootstrapFailed"), ("False", "BootstrapFailed")
    )]
    #[case::off(
        Local { bootstrap: result(true), powered_on: false, running: false, ..local() },
        ("False", "PoweredOff"), ("True", "Succeeded")
    )]
    #[case::crashed(
        Local { bootstrap: result(true), running: false, ..local() }, ("False", "NotRunning"), ("True", "Succeeded")
    )]
    fn a_machine_that_exists_is_provisioned_whatever_it_does(
        #[case] local: Local,
        #[case] ready: (&str, &str),
        #[case] bootstrap: (&str, &str),
    ) {
        let mut observation = complete();
        observation.local = Some(local);
        let status = of(&observation, &Plan::Steady);
        assert!(status.ready && status.initialization.provisioned);
        assert_eq!(status.addresses.len(), 2);
        let owned = |(status, reason): (&str, &str)| (status.to_owned(), reason.to_owned());
        assert_eq!(reason_of(&status, conditions::READY), owned(ready));
        assert_eq!(reason_of(&status, conditions::BOOTSTRAP_SUCCEEDED), owned(bootstrap));
    }

    #[test]
    fn what_is_paused_keeps_the_addresses_that_somebody_has_given_it() {
        let mut observation = complete();
        observation.local = Some(local());
        observation.paused = true;
        let named = Address { kind: AddressType::InternalDNS, address: "demo.invalid".to_owned() };
        let before = LocalMachineStatus { addresses: vec![named], ..LocalMachineStatus::default() };
        let paused = status(&before, Some(1), &observation, &wait(conditions::IS_PAUSED, ""), None);
        assert_eq!(paused.addresses, before.addresses);
        observation.paused = false;
        assert_eq!(status(&paused, Some(1), &observation, &Plan::Steady, None).addresses.len(), 2);
    }

    #[test]
    fn before_it_exists_it_is_not_provisioned_and_says_what_it_waits_for() {
        let status = of(&complete(), &wait(conditions::WAITING_FOR_CLUSTER_INFRASTRUCTURE, ""));
        assert!(!status.ready && !status.initialization.provisioned && status.addresses.is_empty());
        assert_eq!(reason_of(&status, conditions::READY).1, conditions::WAITING_FOR_CLUSTER_INFRASTRUCTURE);
    }

    #[test]
    fn a_failure_is_shown_with_the_end_of_the_console_and_told_once() {
        let mut observation = complete();
        observation.local = Some(Local { bootstrap: result(false), console_end: "last words".to_owned(), ..local() });
        let first = of(&observation, &Plan::Steady);
        let message =
            &first.conditions.iter().find(|c| c.type_ == conditions::BOOTSTRAP_SUCCEEDED).expect("it").message;
        assert!(message.contains("it broke") && message.contains("last words"), "{message}");
        let reasons =
            |before, after| transitions(before, after).into_iter().map(|found| found.reason).collect::<Vec<_>>();
        assert_eq!(reasons(&LocalMachineStatus::default(), &first), ["Created", "BootstrapFailed"]);
        let second = status(&first, Some(1), &observation, &Plan::Steady, None);
        assert_eq!(second, first);
        assert!(transitions(&first, &second).is_empty());
    }

    #[test]
    fn why_it_cannot_be_made_is_shown() {
        let status =
            status(&LocalMachineStatus::default(), Some(1), &complete(), &Plan::Do(Step::Create), Some("no address"));
        assert_eq!(reason_of(&status, conditions::READY).1, conditions::CREATION_FAILED);
        assert!(status.conditions.iter().any(|c| c.message == "no address"));
    }

    #[test]
    fn the_end_of_a_console_is_short() {
        let console = (0..50).map(|i| format!("line {i}\n\n")).collect::<String>() + &"x".repeat(5000);
        let end = console_end(&console);
        assert!(end.starts_with("line 41\n") && end.len() < 400, "{end}");
    }
}
