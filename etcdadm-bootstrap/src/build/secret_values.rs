//! Values of the Secrets that a spec refers to.

use api::EtcdadmConfigSpec;
use api::etcdadm_config::{SecretKey, SecretSource};
use std::collections::BTreeMap;
use std::fmt;

/// Values by Secret and key. `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretValues(BTreeMap<(String, String), Vec<u8>>);

impl SecretValues {
    /// Adds the value of a key.
    pub fn insert(&mut self, key: &SecretKey, value: Vec<u8>) {
        self.0.insert((key.name.clone(), key.key.clone()), value);
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, source: &SecretSource) -> Option<&[u8]> {
        self.0.get(&(source.secret.name.clone(), source.secret.key.clone())).map(Vec::as_slice)
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Every key of a Secret that the spec refers to, with the path of the field.
#[must_use]
pub fn references(spec: &EtcdadmConfigSpec) -> Vec<(String, &SecretKey)> {
    let files = spec.files.iter().enumerate().filter_map(|(index, file)| {
        Some((format!("spec.files[{index}].contentFrom.secret"), &file.content_from.as_ref()?.secret))
    });
    let users = spec.users.iter().enumerate().filter_map(|(index, user)| {
        Some((format!("spec.users[{index}].passwdFrom.secret"), &user.passwd_from.as_ref()?.secret))
    });
    files.chain(users).collect()
}
