//! The API server, found as kubectl finds it.

use anyhow::{Context, Result};
use controller_support::client::client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;
use std::sync::Arc;

/// Which API server and which namespace: kubectl's own flags.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Kubeconfig file to use. Default: the files of KUBECONFIG, or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the EtcdCluster. Default: that of the context
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// A client, and the namespace to use if none is given.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
}

impl Options {
    /// Connects.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub async fn connect(&self) -> Result<Connection> {
        // The one provider of cryptography that everything is built with; it may be installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Connection { client: client(config, &Arc::default()).context("use the kubeconfig")?, namespace })
    }

    async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &self.kubeconfig {
            let file = Kubeconfig::read_from(path).with_context(|| format!("read kubeconfig {}", path.display()))?;
            let config = Config::from_custom_kubeconfig(file, &options).await;
            return config.with_context(|| format!("use kubeconfig {}", path.display()));
        }
        match Config::from_kubeconfig(&options).await {
            Ok(config) => Ok(config),
            // kubectl does the same in a Pod.
            Err(error) if self.context.is_none() => Config::incluster().map_err(|_| error).context(NO_KUBECONFIG),
            Err(error) => Err(error).context(NO_KUBECONFIG),
        }
    }
}

const NO_KUBECONFIG: &str = "no usable kubeconfig; name one with --kubeconfig or KUBECONFIG";
