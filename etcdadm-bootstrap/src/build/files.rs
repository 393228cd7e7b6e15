//! The files that the machine gets: those of etcd's CA, the proxy and the registry mirror, and the user's.

use super::{Bootstrap, InvalidField, STATE_DIR, proxy, registry_mirror, without_nul};
use api::EtcdadmConfigSpec;
use api::etcdadm_config::{Encoding, File};
use base64::Engine as _;
use std::borrow::Cow;

/// Where etcdadm looks for the CA.
const PKI_DIR: &str = "/etc/etcd/pki";
/// Directories below which only the bootstrap itself writes.
const RESERVED_DIRS: [&str; 2] = ["/etc/etcd", STATE_DIR];

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteFile {
    /// Path of the field that the file comes from, for messages. Empty for files of the bootstrap itself.
    pub field: String,
    /// Absolute, without `.`, `..` and doubled slashes.
    pub path: String,
    /// `user` or `user:group`.
    pub owner: String,
    /// Octal digits.
    pub permissions: String,
    /// The content as it goes into the document, before Base64.
    pub content: Vec<u8>,
    /// Whether the content is to be decompressed on the machine.
    pub gzip: bool,
    /// Whether to append to an existing file.
    pub append: bool,
    /// Whether the owner is one of the spec's users, who exists only after most files have been written.
    pub after_users: bool,
}

impl WriteFile {
    /// A file of the bootstrap itself.
    pub(super) fn ours(path: &str, permissions: &str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            field: String::new(),
            path: path.to_owned(),
            owner: "root:root".to_owned(),
            permissions: permissions.to_owned(),
            content: content.into(),
            gzip: false,
            append: false,
            after_users: false,
        }
    }
}

/// etcd's CA where etcdadm looks for it, and the directory of the bootstrap's state.
pub(super) fn authority(bootstrap: &Bootstrap<'_>) -> Vec<WriteFile> {
    vec![
        WriteFile::ours(&format!("{PKI_DIR}/ca.crt"), "0640", bootstrap.authority.cert()),
        WriteFile::ours(&format!("{PKI_DIR}/ca.key"), "0600", bootstrap.authority.key()),
        WriteFile::ours(
            &format!("{STATE_DIR}/placeholder"),
            "0640",
            format!("This file is here so that the directory {STATE_DIR} exists.\n"),
        ),
    ]
}

/// The CA's certificate and key in one file, for a provider that needs time for each file, and the commands that split
/// it.
pub(super) fn authority_in_one(bootstrap: &Bootstrap<'_>) -> (WriteFile, String) {
    let (path, length) = (format!("{STATE_DIR}/etcd-ca.pem"), bootstrap.authority.cert().len());
    let content = [bootstrap.authority.cert(), bootstrap.authority.key()].concat();
    // The commands split it by length, because a Secret may contain more than PEM, and may not end with a line break.
    let apart = format!(
        "mkdir -p {PKI_DIR} && (umask 027 && head -c {length} {path} >{PKI_DIR}/ca.crt) && \
         (umask 077 && tail -c +{} {path} >{PKI_DIR}/ca.key) && rm {path}",
        length + 1
    );
    (WriteFile::ours(&path, "0600", content), apart)
}

/// Every file, ours first: cloud-init stops at the first one that it cannot write.
pub(super) fn all(bootstrap: &Bootstrap<'_>, ours: Vec<WriteFile>) -> Result<Vec<WriteFile>, InvalidField> {
    let mut files = ours;
    files.extend(proxy::file(bootstrap.spec)?);
    files.extend(registry_mirror::files(bootstrap.spec));
    for (index, file) in bootstrap.spec.files.iter().enumerate() {
        let ready = users_file(bootstrap, &format!("spec.files[{index}]"), file)?;
        if let Some(other) = files.iter().find(|other| other.path == ready.path) {
            let by = if other.field.is_empty() { "the bootstrap itself" } else { other.field.as_str() };
            let problem = format!("{} is written by {by} already", ready.path);
            return Err(InvalidField::new(format!("spec.files[{index}].path"), problem));
        }
        files.push(ready);
    }
    Ok(files)
}

fn users_file(bootstrap: &Bootstrap<'_>, field: &str, file: &File) -> Result<WriteFile, InvalidField> {
    check_path(field, &file.path)?;
    let (content, gzip) = content(bootstrap, field, file)?;
    let owner = file.owner.clone().unwrap_or_else(|| "root:root".to_owned());
    Ok(WriteFile {
        field: field.to_owned(),
        path: file.path.clone(),
        after_users: is_ours_to_create(bootstrap.spec, &owner),
        owner,
        permissions: file.permissions.clone().unwrap_or_else(|| "0644".to_owned()),
        content,
        gzip,
        append: file.append.unwrap_or(false),
    })
}

fn check_path(field: &str, path: &str) -> Result<(), InvalidField> {
    let field = || format!("{field}.path");
    without_nul(field, path)?;
    let plain = path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(|part| !["", ".", ".."].contains(&part)));
    if !plain {
        let problem = "must be an absolute path of a file, without `.`, `..` and doubled slashes";
        return Err(InvalidField::new(field(), problem));
    }
    let reserved = RESERVED_DIRS.iter().find(|dir| path.strip_prefix(**dir).is_some_and(|rest| rest.starts_with('/')));
    match reserved {
        Some(dir) => Err(InvalidField::new(field(), format!("paths below {dir}/ are written by the bootstrap itself"))),
        None => Ok(()),
    }
}

/// The file's content, and whether it is compressed.
fn content(bootstrap: &Bootstrap<'_>, field: &str, file: &File) -> Result<(Vec<u8>, bool), InvalidField> {
    let (field, given): (String, Cow<'_, [u8]>) = match (&file.content, &file.content_from) {
        (Some(content), None) => (format!("{field}.content"), Cow::Borrowed(content.as_bytes())),
        (None, Some(source)) => {
            let value = bootstrap.secrets.get(source).unwrap_or_default();
            (format!("{field}.contentFrom"), Cow::Borrowed(value))
        }
        _ => return Err(InvalidField::new(field, "set either content or contentFrom")),
    };
    let decoded = match file.encoding {
        None | Some(Encoding::Gzip) => given.into_owned(),
        Some(Encoding::Base64 | Encoding::GzipBase64) => {
            // Tools print Base64 in lines.
            let joined: Vec<u8> = given.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
            base64::engine::general_purpose::STANDARD
                .decode(joined)
                .map_err(|error| InvalidField::new(&field, format!("is not Base64: {}", without_value(&error))))?
        }
    };
    let gzip = matches!(file.encoding, Some(Encoding::Gzip | Encoding::GzipBase64));
    if gzip && !decoded.starts_with(&[0x1f, 0x8b]) {
        return Err(InvalidField::new(field, "is not compressed by gzip, as its encoding says"));
    }
    Ok((decoded, gzip))
}

/// The error as a message that quotes nothing of the content, which may be a secret.
fn without_value(error: &base64::DecodeError) -> String {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol { offset: at, .. } => {
            format!("unexpected character at {at}")
        }
        base64::DecodeError::InvalidLength(length) => format!("a length of {length} is not possible"),
        base64::DecodeError::InvalidPadding => "its padding is wrong".to_owned(),
    }
}

/// Whether the user or group of `owner` is created with the spec's users.
fn is_ours_to_create(spec: &EtcdadmConfigSpec, owner: &str) -> bool {
    owner.split(':').any(|name| {
        spec.users.iter().any(|user| {
            let groups = user.groups.iter().flat_map(|groups| groups.split(',').map(str::trim));
            user.name == name || user.primary_group.as_deref() == Some(name) || groups.into_iter().any(|g| g == name)
        })
    })
}
