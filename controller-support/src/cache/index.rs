//! Indexes: how a controller finds objects of a watch other than by name.

use kube::ResourceExt;
use kube::api::DynamicObject;

/// Finds objects of a watch by what they contain. It is built at its first use and kept up to date from then on.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    pub(super) name: &'static str,
    pub(super) keys: fn(&DynamicObject) -> Vec<String>,
}

impl Index {
    /// An index under a name that no other index over the same kind has. `keys` is pure: the same object always has the
    /// same keys.
    #[must_use]
    pub const fn new(name: &'static str, keys: fn(&DynamicObject) -> Vec<String>) -> Self {
        Self { name, keys }
    }
}

/// By the UID of the owner that controls the object.
pub const BY_CONTROLLER_UID: Index = Index::new("controller UID", |object| {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    controller.map(|owner| owner.uid.clone()).into_iter().collect()
});
