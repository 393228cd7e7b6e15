//! Lists of endpoints that API servers may be using, in the form of the annotation `endpoints-in-use` of the
//! etcd-provider contract.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

/// Client URLs that API servers are started with together.
pub type EndpointList = BTreeSet<String>;

/// Every list of endpoints that some API server may have been started with. No list is empty.
///
/// The lists are kept apart: how many members may fail depends on the list of one API server, and not on all lists
/// together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointLists(BTreeSet<EndpointList>);

impl EndpointLists {
    /// Reads lists that are separated by semicolons, with commas between the URLs of each. Everything else in the text
    /// counts as a URL.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.split(';').map(parse_list).collect()
    }

    /// The lists.
    pub fn iter(&self) -> impl Iterator<Item = &EndpointList> {
        self.0.iter()
    }

    /// Whether no API server uses any endpoint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every URL of all the lists, each once.
    #[must_use]
    pub fn urls(&self) -> BTreeSet<&str> {
        self.0.iter().flatten().map(String::as_str).collect()
    }

    /// Whether there is a list that `other` does not have.
    #[must_use]
    pub fn has_more_than(&self, other: &Self) -> bool {
        !self.0.is_subset(&other.0)
    }
}

/// Reads URLs with commas between them.
#[must_use]
pub fn parse_list(text: &str) -> EndpointList {
    text.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect()
}

impl FromIterator<EndpointList> for EndpointLists {
    fn from_iter<I: IntoIterator<Item = EndpointList>>(lists: I) -> Self {
        Self(lists.into_iter().filter(|list| !list.is_empty()).collect())
    }
}

/// The lists are sorted, and each appears once, so the same lists always give the same text.
impl Display for EndpointLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |list: &EndpointList| list.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        f.write_str(&self.0.iter().map(list).collect::<Vec<_>>().join(";"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_none_is_empty() {
        for (text, read) in [
            ("", ""),
            (" ; ,", ""),
            ("a", "a"),
            ("b,a,b", "a,b"),
            ("b, a;c ;", "a,b;c"),
            ("a,b;a", "a;a,b"),
            ("a;a", "a"),
        ] {
            let lists = EndpointLists::parse(text);
            assert_eq!(lists.to_string(), read, "{text:?}");
            assert_eq!(EndpointLists::parse(read), lists, "{text:?}");
        }
        assert_eq!(EndpointLists::parse("a,b;b,c").urls(), BTreeSet::from(["a", "b", "c"]));
    }

    #[test]
    fn a_list_is_more_even_if_its_urls_are_known() {
        let has_more = |left, right| EndpointLists::parse(left).has_more_than(&EndpointLists::parse(right));
        assert!(has_more("a;a,b", "a,b"));
        assert!(!has_more("a,b", "a;a,b"));
    }
}
