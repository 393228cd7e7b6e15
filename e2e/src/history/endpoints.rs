//! Where clients send their requests.

use std::sync::Arc;
use tokio::sync::watch;

/// A list of endpoints, used in turn.
#[derive(Clone, Debug)]
pub enum Endpoints {
    /// The same list throughout, as an API server has it.
    Fixed(Arc<[String]>),
    /// The list as it is now.
    Current(watch::Receiver<Vec<String>>),
}

impl Endpoints {
    /// The endpoint whose turn it is; `None` while the list is empty.
    pub fn pick(&self, turn: usize) -> Option<String> {
        let pick = |list: &[String]| (!list.is_empty()).then(|| list[turn % list.len()].clone());
        match self {
            Self::Fixed(list) => pick(list),
            Self::Current(list) => pick(&list.borrow()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_changes_is_followed() {
        let (sender, receiver) = watch::channel(vec!["a".to_owned(), "b".to_owned()]);
        let current = Endpoints::Current(receiver);
        let fixed = Endpoints::Fixed(["a".to_owned(), "b".to_owned()].into());
        assert_eq!([0, 1, 2].map(|turn| current.pick(turn).unwrap()), ["a", "b", "a"]);
        sender.send_replace(vec!["c".to_owned()]);
        assert_eq!(current.pick(1).unwrap(), "c");
        assert_eq!(fixed.pick(1).unwrap(), "b");
        sender.send_replace(Vec::new());
        assert_eq!(current.pick(0), None);
    }
}
