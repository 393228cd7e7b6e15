//! A simulated member answers as a real one does: both get the same requests, and their answers have the same shape.

mod grpc;
mod http;
mod pairs;

use anyhow::{Context, Result, ensure};
use e2e::simulated::{SUBNET, serve_at};
use e2e::tls::{Authority, connector};
use e2e::world::World;
use pairs::Pair;
use std::net::Ipv4Addr;

/// A voter and a learner of real etcd, and two simulated ones, with the same CA.
pub(crate) async fn answers_as_etcd_does(world: World) -> Result<()> {
    serve_at(&SUBNET.parse()?)?;
    let (authority, key) = Authority::create("etcd-ca")?;
    let (real, _processes) = pairs::real(&world, &authority).await.context("two members of real etcd")?;
    let simulated = pairs::simulated(&authority, &key).await.context("two simulated members")?;

    let (mut differences, identity) = (Vec::new(), authority.client("test")?);
    let own = connector(&authority.certificate, Some(&identity), None)?;
    for (method, path, body) in http::QUESTIONS {
        for (who, real, simulated) in both(&real, &simulated) {
            let real = http::ask(real, &own, method, path, body).await.context(path)?;
            let simulated = http::ask(simulated, &own, method, path, body).await.context(path)?;
            let compared = http::compare(&real, &simulated);
            differences.extend(compared.err().map(|why| format!("{method} {path} {body} of the {who}: {why}")));
        }
    }
    let mut equal = |what: &str, real: String, simulated: String| {
        if real != simulated {
            differences.push(format!("{what}: etcd says {real}, and the simulation {simulated}"));
        }
    };

    let (stranger, _) = Authority::create("another-ca")?;
    for (what, identity) in [("a client of another CA", Some(stranger.client("test")?)), ("no certificate", None)] {
        let tls = connector(&authority.certificate, identity.as_ref(), None)?;
        let (real, simulated) = (http::refusal(real.voter, &tls).await?, http::refusal(simulated.voter, &tls).await?);
        equal(what, format!("{real:?}"), format!("{simulated:?}"));
    }

    for (who, real, simulated) in both(&real, &simulated) {
        let real = grpc::reads(real, &authority, &identity).await.context("etcd")?;
        let simulated = grpc::reads(simulated, &authority, &identity).await.context("the simulation")?;
        equal(&format!("the {who} by gRPC"), format!("{real:#?}"), format!("{simulated:#?}"));
    }
    let real = grpc::changes(real.voter, &authority, &identity).await.context("etcd")?;
    let simulated = grpc::changes(simulated.voter, &authority, &identity).await.context("the simulation")?;
    equal("changes by gRPC", format!("{real:#?}"), format!("{simulated:#?}"));
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

fn both(real: &Pair, simulated: &Pair) -> [(&'static str, Ipv4Addr, Ipv4Addr); 2] {
    [("voter", real.voter, simulated.voter), ("learner", real.learner, simulated.learner)]
}
