//! EtcdadmConfig to bootstrap data: makes the Secret from which a Machine becomes an etcd member.

pub mod build;
