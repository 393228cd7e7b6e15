//! What every controller decides: the next step, or why there is none. If a plan needs one more read, that read is a
//! step.

use std::time::Duration;

/// What a pure plan decides. `S`: the steps of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan<S> {
    /// Everything is as specified.
    Steady,
    /// Something has to happen first, and it needs nobody's help.
    Wait(Hold),
    /// Somebody has to change something.
    Block(Hold),
    /// One step.
    Do(S),
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// One of [`api::conditions::reasons`].
    pub reason: &'static str,
    /// What is waited for, and what would help. For people.
    pub message: String,
    /// When to decide again. `None`: when a watch reports a change.
    pub again: Option<Duration>,
}

impl Hold {
    /// A hold that a watch ends.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), again: None }
    }

    /// Decides again after `delay`, because no watch reports the change.
    #[must_use]
    pub fn again(self, delay: Duration) -> Self {
        Self { again: Some(delay), ..self }
    }
}

/// [`Plan::Wait`] until a watch reports a change; see [`Plan::again`].
#[must_use]
pub fn wait<S>(reason: &'static str, message: impl Into<String>) -> Plan<S> {
    Plan::Wait(Hold::new(reason, message))
}

/// [`Plan::Block`] until a watch reports a change; see [`Plan::again`].
#[must_use]
pub fn block<S>(reason: &'static str, message: impl Into<String>) -> Plan<S> {
    Plan::Block(Hold::new(reason, message))
}

impl<S> Plan<S> {
    /// Decides again after `delay`, if the plan waits or is blocked.
    #[must_use]
    pub fn again(self, delay: Duration) -> Self {
        match self {
            Self::Wait(hold) => Self::Wait(hold.again(delay)),
            Self::Block(hold) => Self::Block(hold.again(delay)),
            other => other,
        }
    }

    /// Why nothing is done, if the plan waits or is blocked.
    #[must_use]
    pub fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Wait(hold) | Self::Block(hold) => Some(hold),
            Self::Steady | Self::Do(_) => None,
        }
    }

    /// Whether nothing is done for this reason.
    #[must_use]
    pub fn is_held_for(&self, reason: &str) -> bool {
        self.hold().is_some_and(|hold| hold.reason == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hold_has_a_time_to_look_again() {
        let later = Duration::from_secs(10);
        let plan: Plan<()> = block("Refused", "the quota is used up").again(later);
        let hold = Hold { reason: "Refused", message: "the quota is used up".to_owned(), again: Some(later) };
        assert_eq!(plan, Plan::Block(hold.clone()));
        assert_eq!(plan.hold(), Some(&hold));
        assert!(plan.is_held_for("Refused") && !plan.is_held_for("Paused"));
        assert_eq!(Plan::Do(()).again(later), Plan::Do(()));
        assert_eq!(wait::<()>("Paused", "").hold().and_then(|hold| hold.again), None);
    }
}
