//! Decides what a control plane does next with its API servers. As in Cluster API's own control plane, a new API server
//! is ready before an old one ends.

/// How a control plane reacts to changed endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It replaces one API server after the other.
    Rolls,
    /// It counts the API servers that are to be replaced, and replaces none.
    Stalls,
    /// Every API server that it starts hangs from the beginning, until the behaviour changes.
    Fails,
}

/// What the decision depends on, of one API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// It was started with other endpoints than the present ones.
    pub(super) old: bool,
    /// It says that it is ready.
    pub(super) ready: bool,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, for now.
    Wait,
    /// Start an API server.
    Start,
    /// End the API server at this index.
    Stop(usize),
}

/// Decides the next step for these API servers, oldest first.
pub(super) fn next(servers: &[Known], wanted: usize, behaviour: Behaviour) -> Next {
    let are_too_many = servers.len() > wanted;
    if let Some(place) = servers.iter().position(|server| !server.ready) {
        // An API server that never became ready ends only if it is old itself and there are too many.
        let is_superseded = are_too_many && servers[place].old;
        return if is_superseded { Next::Stop(place) } else { Next::Wait };
    }
    if servers.len() < wanted {
        return Next::Start;
    }
    match servers.iter().position(|server| server.old) {
        None if are_too_many => Next::Stop(0),
        None => Next::Wait,
        Some(_) if behaviour == Behaviour::Stalls => Next::Wait,
        Some(oldest) if are_too_many => Next::Stop(oldest),
        Some(_) => Next::Start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n`: new and ready. `o`: old and ready. A capital letter: not ready.
    fn servers(text: &str) -> Vec<Known> {
        text.chars().map(|it| Known { old: it.eq_ignore_ascii_case(&'o'), ready: it.is_lowercase() }).collect()
    }

    #[test]
    fn a_new_one_is_ready_before_an_old_one_goes() {
        use Behaviour::{Fails, Rolls, Stalls};
        for (text, behaviour, expected) in [
            // API servers come up one after the other, whatever happens to rollouts.
            ("", Rolls, Next::Start),
            ("N", Rolls, Next::Wait),
            ("n", Stalls, Next::Start),
            ("nnn", Rolls, Next::Wait),
            // A rollout.
            ("ooo", Rolls, Next::Start),
            ("oooN", Rolls, Next::Wait),
            ("ooon", Rolls, Next::Stop(0)),
            ("oon", Rolls, Next::Start),
            ("onnn", Rolls, Next::Stop(0)),
            // A rollout that stalls, also halfway.
            ("ooo", Stalls, Next::Wait),
            ("ooon", Stalls, Next::Wait),
            ("oon", Stalls, Next::Wait),
            // A rollout that fails.
            ("ooo", Fails, Next::Start),
            ("oooN", Fails, Next::Wait),
            // The endpoints have changed again meanwhile.
            ("oooO", Rolls, Next::Stop(3)),
            ("ooO", Rolls, Next::Wait),
            // Fewer are wanted.
            ("nnnn", Rolls, Next::Stop(0)),
        ] {
            assert_eq!(next(&servers(text), 3, behaviour), expected, "{text} {behaviour:?}");
        }
    }

    #[test]
    fn a_whole_rollout_starts_as_many_as_there_are_and_three_are_always_ready() {
        let mut running = servers("ooo");
        let mut started = 0;
        loop {
            match next(&running, 3, Behaviour::Rolls) {
                Next::Start => {
                    started += 1;
                    running.push(Known { old: false, ready: false });
                }
                Next::Stop(place) => {
                    running.remove(place);
                }
                Next::Wait if running.iter().all(|server| server.ready) => break,
                Next::Wait => running.iter_mut().for_each(|server| server.ready = true),
            }
            assert!(running.iter().filter(|server| server.ready).count() >= 3, "{running:?}");
        }
        assert_eq!((running, started), (servers("nnn"), 3));
    }
}
