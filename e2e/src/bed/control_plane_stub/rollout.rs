//! What a control plane does next about its API servers. As with Cluster API's own, a new one is there and ready before
//! an old one goes.

/// How a control plane goes about other endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It replaces one API server after the other.
    Rolls,
    /// It counts those that are to be replaced, and replaces none.
    Stalls,
    /// What it starts hangs before it has begun, until the behaviour is another one.
    Fails,
}

/// An API server, as far as this goes.
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
    /// Start one.
    Start,
    /// End the one at this place.
    Stop(usize),
}

/// Decides for these API servers, the oldest first.
pub(super) fn next(servers: &[Known], wanted: usize, behaviour: Behaviour) -> Next {
    let are_too_many = servers.len() > wanted;
    if let Some(place) = servers.iter().position(|server| !server.ready) {
        // One that never got ready is in nobody's way once it is old itself.
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

    /// `n`: new and ready, `o`: old and ready; in capitals what is not ready.
    fn servers(text: &str) -> Vec<Known> {
        text.chars().map(|it| Known { old: it.eq_ignore_ascii_case(&'o'), ready: it.is_lowercase() }).collect()
    }

    #[test]
    fn a_new_one_is_ready_before_an_old_one_goes() {
        use Behaviour::{Fails, Rolls, Stalls};
        for (text, behaviour, expected) in [
            // They come up one after the other, whatever happens to rollouts.
            ("", Rolls, Next::Start),
            ("N", Rolls, Next::Wait),
            ("n", Stalls, Next::Start),
            ("nnn", Rolls, Next::Wait),
            // They are replaced.
            ("ooo", Rolls, Next::Start),
            ("oooN", Rolls, Next::Wait),
            ("ooon", Rolls, Next::Stop(0)),
            ("oon", Rolls, Next::Start),
            ("onnn", Rolls, Next::Stop(0)),
            // It stalls, also halfway.
            ("ooo", Stalls, Next::Wait),
            ("ooon", Stalls, Next::Wait),
            ("oon", Stalls, Next::Wait),
            // It fails.
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
