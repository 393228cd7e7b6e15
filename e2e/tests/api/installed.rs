//! The CRDs themselves.

use crate::refusals::OF_FAILURE_DOMAINS;
use crate::server::Server;
use crate::{config_cases, etcd_cases};
use anyhow::{Context, Result, ensure};
use e2e::bed::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{Api, ResourceExt};

/// Established means that names do not clash and schemas are structural. The API server would also report rules that
/// cost too much.
pub(crate) async fn every_crd_is_established(server: &Server) -> Result<()> {
    let known = crds()?;
    ensure!(known.len() == 6, "{} CRDs", known.len());
    for crd in known {
        let name = crd["metadata"]["name"].as_str().context("a CRD has no name")?;
        let crd = Api::<CustomResourceDefinition>::all(server.client.clone()).get(name).await?;
        let conditions = crd.status.unwrap_or_default().conditions.unwrap_or_default();
        let is = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
        ensure!(is("Established") && is("NamesAccepted"), "{name}: {conditions:?}");
        ensure!(!is("NonStructuralSchema"), "{name}: {conditions:?}");
        let served: Vec<&str> = crd.spec.versions.iter().filter(|v| v.served).map(|v| v.name.as_str()).collect();
        let ours = !crd.spec.group.starts_with("infrastructure");
        ensure!(served == if ours { vec!["v1alpha4", "v1beta1"] } else { vec!["v1alpha1"] }, "{name}: {served:?}");
    }
    Ok(())
}

/// A rule about updates. [`crate::updates`] tests it.
const OF_UPDATES: [&str; 1] = ["spec can no longer change"];

/// The API server shows a rule without a message as CEL. A rule that no case breaks is not tested.
pub(crate) async fn every_rule_has_a_message_and_is_judged(server: &Server) -> Result<()> {
    let cases = [etcd_cases::cases(), config_cases::cases()].into_iter().flatten().map(|case| case.says);
    let cases: Vec<&str> = cases.chain([OF_FAILURE_DOMAINS]).collect();
    let judged = |message: &str| OF_UPDATES.iter().chain(&cases).any(|says| !says.is_empty() && message.contains(says));
    let mut rules = 0;
    let installed = Api::<CustomResourceDefinition>::all(server.client.clone());
    // CRDs of other projects are installed too.
    for ours in crds()? {
        let crd = installed.get(ours["metadata"]["name"].as_str().context("a CRD has no name")?).await?;
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            visit(schema.context("no schema")?, &mut |schema| {
                for rule in schema.x_kubernetes_validations.iter().flatten() {
                    rules += 1;
                    let message = rule.message.as_deref().with_context(|| format!("{} has no message", rule.rule))?;
                    ensure!(judged(message), "{}: no case is about {message:?}", crd.name_any());
                }
                ensure!(schema.pattern.is_none(), "{}: pattern {:?} says nothing", crd.name_any(), schema.pattern);
                Ok(())
            })?;
        }
    }
    ensure!(rules > 100, "only {rules} rules were found");
    Ok(())
}

fn visit(schema: &JSONSchemaProps, look: &mut impl FnMut(&JSONSchemaProps) -> Result<()>) -> Result<()> {
    look(schema)?;
    for property in schema.properties.iter().flat_map(|properties| properties.values()) {
        visit(property, look)?;
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        visit(items, look)?;
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        visit(values, look)?;
    }
    Ok(())
}
