//! What is made of it: from facts and the time alone.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_api::crds::crds;
use kube::ResourceExt;

use super::facts::{Asked, Facts};
use super::{Check, Level};
use crate::commands::status::view::{Row, Verdict};
use crate::commands::words::{count, listed, program, since, span};

/// The oldest Kubernetes that has all that is needed.
const OLDEST: (u32, u32) = (1, 30);
/// Clocks may differ so far without anybody being misled.
const CLOCKS_DIFFER: i64 = 10;
/// An operator that is at work renews its Lease more often than that.
const RENEWED: i64 = 60;

const INSTALL: &str = "docs/install.md says how to install it";

fn ok(what: &'static str, message: impl Into<String>) -> Check {
    Check { what, level: Level::Ok, message: message.into(), todo: None }
}

fn warn(what: &'static str, message: impl Into<String>, todo: impl Into<String>) -> Check {
    Check { what, level: Level::Warn, message: message.into(), todo: Some(todo.into()) }
}

fn fail(what: &'static str, message: impl Into<String>, todo: impl Into<String>) -> Check {
    Check { what, level: Level::Fail, message: message.into(), todo: Some(todo.into()) }
}

fn unknown(what: &'static str, why: &str) -> Check {
    warn(what, format!("not known: {why}"), "ask somebody who may read it")
}

/// A line for each thing.
pub fn checks(facts: &Facts, now: Timestamp) -> Vec<Check> {
    let mut checks = vec![version(&facts.version)];
    checks.extend(facts.clocks.map(|(there, here)| clocks(there, here)));
    checks.extend(definitions(&facts.definitions));
    checks.push(operators(&facts.operators));
    checks.push(leader(facts, now));
    checks.push(policy(facts));
    checks.push(webhook(facts));
    checks.push(admission(facts));
    checks.push(classes(facts));
    checks.push(rights(&facts.missing_rights));
    checks.push(own(&facts.own_missing));
    checks.push(metrics(&facts.metrics));
    checks.push(databases(&facts.databases));
    checks
}

fn version(version: &Asked<String>) -> Check {
    const WHAT: &str = "Kubernetes";
    let version = match version {
        Ok(version) => version,
        Err(why) => return unknown(WHAT, why),
    };
    let mut numbers =
        version.trim_start_matches('v').split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let found = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    match found >= OLDEST {
        true => ok(WHAT, version.clone()),
        false => fail(
            WHAT,
            format!("{version} is too old"),
            format!("upgrade it to {}.{} or newer", OLDEST.0, OLDEST.1),
        ),
    }
}

fn clocks(there: Timestamp, here: Timestamp) -> Check {
    const WHAT: &str = "clocks";
    let differ = since(there, here);
    match differ.abs() {
        // It is told in whole seconds, and takes a moment to get here.
        ..=2 => ok(WHAT, "this machine and the API server agree"),
        3..=CLOCKS_DIFFER => {
            ok(WHAT, format!("this machine and the API server differ by {}", span(differ.abs())))
        }
        far => warn(
            WHAT,
            format!("this machine and the API server differ by {}", span(far)),
            "set the clock that is wrong: leadership does not go by it, but ages, schedules and certificates do",
        ),
    }
}

fn definitions(found: &Asked<Vec<CustomResourceDefinition>>) -> Vec<Check> {
    const WHAT: &str = "definitions";
    let found = match found {
        Ok(found) => found,
        Err(why) => return vec![unknown(WHAT, why)],
    };
    let wanted = crds().unwrap_or_default();
    wanted
        .iter()
        .map(|wanted| definition(wanted, found.iter().find(|one| one.name_any() == wanted.name_any())))
        .collect()
}

fn definition(wanted: &CustomResourceDefinition, found: Option<&CustomResourceDefinition>) -> Check {
    const WHAT: &str = "definitions";
    let name = wanted.name_any();
    let Some(found) = found else {
        let todo = format!("`{} install` makes it; {INSTALL}", program());
        return fail(WHAT, format!("{name} is not there"), todo);
    };
    let served = |one: &CustomResourceDefinition| -> Vec<String> {
        one.spec
            .versions
            .iter()
            .filter(|version| version.served)
            .map(|version| version.name.clone())
            .collect()
    };
    let (has, wants) = (served(found), served(wanted));
    let lacks: Vec<&String> = wants.iter().filter(|version| !has.contains(version)).collect();
    if !lacks.is_empty() {
        return fail(WHAT, format!("{name} does not serve {}", listed(&lacks)), "upgrade the installation");
    }
    let conditions = found.status.as_ref().and_then(|status| status.conditions.as_ref());
    let established =
        conditions.into_iter().flatten().any(|one| one.type_ == "Established" && one.status == "True");
    if !established {
        return fail(
            WHAT,
            format!("{name} is not served yet"),
            "see kubectl describe crd for what is in its way",
        );
    }
    let trusts = found
        .spec
        .conversion
        .as_ref()
        .and_then(|conversion| conversion.webhook.as_ref()?.client_config.clone());
    let converts = has.len() > 1;
    match (converts, trusts) {
        (true, None) => warn(
            WHAT,
            format!("{name} has several versions and no conversion webhook"),
            "use v1 alone, or install Keelson with its webhooks",
        ),
        (true, Some(config)) if config.ca_bundle.as_ref().is_none_or(|bundle| bundle.0.is_empty()) => fail(
            WHAT,
            format!("{name} does not trust the conversion webhook: versions but v1 can't be read"),
            "an operator that runs writes the authority: see whether one does",
        ),
        _ => ok(WHAT, format!("{name} serves {}", listed(&has))),
    }
}

fn operators(found: &Asked<Vec<Deployment>>) -> Check {
    const WHAT: &str = "operator";
    let found = match found {
        Ok(found) => found,
        Err(why) => return unknown(WHAT, why),
    };
    let Some(first) = found.first() else {
        return fail(WHAT, "there is none", format!("`{} install` installs one; {INSTALL}", program()));
    };
    let place = format!("{}/{}", first.namespace().unwrap_or_default(), first.name_any());
    let wanted = first.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = first.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let version = first.labels().get("app.kubernetes.io/version").cloned().unwrap_or_default();
    let here = env!("CARGO_PKG_VERSION");
    match (ready, version == here || version.is_empty()) {
        (0, _) => fail(
            WHAT,
            format!("{place}: none of {wanted} is ready. Databases run on, and nobody looks after them"),
            format!("see kubectl describe and logs of deployment {place}"),
        ),
        (ready, _) if ready < wanted => {
            warn(WHAT, format!("{place}: {ready} of {wanted} are ready"), "see the pods that are not")
        }
        (_, false) => warn(
            WHAT,
            format!("{place} is version {version}, and this program {here}"),
            "use the program of the same version",
        ),
        (_, true) => ok(WHAT, format!("{place}: {ready} of {wanted} are ready")),
    }
}

fn leader(facts: &Facts, now: Timestamp) -> Check {
    const WHAT: &str = "operator's leader";
    let lease = match &facts.lease {
        Ok(lease) => lease.as_ref().and_then(|lease| lease.spec.as_ref()),
        Err(why) => return unknown(WHAT, why),
    };
    let holder = lease.and_then(|spec| spec.holder_identity.clone()).filter(|holder| !holder.is_empty());
    let renewed = lease.and_then(|spec| spec.renew_time.as_ref()).map(|time| since(time.0, now));
    match (holder, renewed) {
        (Some(holder), Some(ago)) if ago < RENEWED => {
            ok(WHAT, format!("{holder}, renewed {} ago", span(ago)))
        }
        (Some(holder), Some(ago)) => fail(
            WHAT,
            format!("{holder} has not renewed its Lease for {}: nobody is at work", span(ago)),
            "see the log of the operator's pods",
        ),
        _ => fail(WHAT, "nobody leads: nobody is at work", "see the log of the operator's pods"),
    }
}

fn policy(facts: &Facts) -> Check {
    const WHAT: &str = "admission rules";
    match &facts.policy {
        Ok(Some(_)) => ok(WHAT, "they are in force, also while the operator is away"),
        Ok(None) => warn(WHAT, "the policy is not there", "upgrade the installation"),
        Err(why) => unknown(WHAT, why),
    }
}

fn webhook(facts: &Facts) -> Check {
    const WHAT: &str = "admission webhook";
    match &facts.webhook {
        Ok(Some(found)) => {
            let trusted = |bundle: &k8s_openapi::ByteString| !bundle.0.is_empty();
            let mut all = found.webhooks.iter().flatten();
            match all.all(|one| one.client_config.ca_bundle.as_ref().is_some_and(trusted)) {
                true => ok(WHAT, "its certificate is trusted"),
                false => fail(
                    WHAT,
                    "it has no certificate that is trusted",
                    "an operator that runs writes the authority: see whether one does",
                ),
            }
        }
        Ok(None) => warn(
            WHAT,
            "it is not there: some mistakes are found only when it is too late",
            "install Keelson with its webhooks",
        ),
        Err(why) => unknown(WHAT, why),
    }
}

/// Whether what makes no sense is refused, and what makes sense is not.
fn admission(facts: &Facts) -> Check {
    const WHAT: &str = "admission at work";
    match &facts.admission {
        (_, Err(why)) if why.contains(" cannot ") => unknown(WHAT, why),
        (_, Err(why)) => fail(
            WHAT,
            format!("a Database that makes sense is refused: {why}"),
            "see what refuses it: a webhook that does not answer, a quota, a policy of this cluster",
        ),
        (Err(_), Ok(())) => ok(WHAT, "nonsense is refused, and sense is not"),
        (Ok(()), Ok(())) => {
            warn(WHAT, "a schedule that can't be is taken: the webhook is not asked", "see the line above")
        }
    }
}

fn classes(facts: &Facts) -> Check {
    const WHAT: &str = "storage";
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let classes = match &facts.classes {
        Ok(classes) => classes,
        Err(why) => return unknown(WHAT, why),
    };
    let default =
        classes.iter().find(|class| class.annotations().get(DEFAULT).is_some_and(|value| value == "true"));
    match default {
        _ if classes.is_empty() => {
            fail(WHAT, "there is no storage class", "install one: volumes can't be made without")
        }
        None => {
            let names: Vec<String> = classes.iter().map(ResourceExt::name_any).collect();
            let todo = format!("name one in spec.storage.class: {}", listed(&names));
            warn(WHAT, "no class is the default one", todo)
        }
        Some(class) if class.allow_volume_expansion != Some(true) => warn(
            WHAT,
            format!("volumes of the default class {} can't grow", class.name_any()),
            "set allowVolumeExpansion in it, if its driver can: a full volume can only be helped by a larger one",
        ),
        Some(class) => ok(WHAT, format!("volumes of the default class {} can grow", class.name_any())),
    }
}

fn rights(missing: &Asked<Vec<String>>) -> Check {
    const WHAT: &str = "operator's rights";
    match missing {
        Ok(missing) if missing.is_empty() => ok(WHAT, "it may do in all namespaces what it has to"),
        Ok(missing) => fail(
            WHAT,
            format!("it may not {} in all namespaces", listed(&missing.iter().take(5).collect::<Vec<_>>())),
            "upgrade the installation; where it looks after one namespace only, that is as it should be",
        ),
        Err(why) => unknown(WHAT, why),
    }
}

fn own(missing: &Asked<Vec<String>>) -> Check {
    const WHAT: &str = "your rights";
    match missing {
        Ok(missing) if missing.is_empty() => {
            ok(WHAT, "you may do all that these commands do in this namespace")
        }
        Ok(missing) => warn(
            WHAT,
            format!("you may not {} in this namespace", listed(missing)),
            "ask for them if you need the commands",
        ),
        Err(why) => unknown(WHAT, why),
    }
}

fn metrics(found: &Asked<bool>) -> Check {
    const WHAT: &str = "metrics";
    match found {
        Ok(true) => ok(WHAT, "the operator serves them"),
        Ok(false) => warn(WHAT, "the operator's page has none of its metrics", "see docs/metrics.md"),
        Err(why) => unknown(WHAT, why),
    }
}

fn databases(rows: &Asked<Vec<Row>>) -> Check {
    const WHAT: &str = "databases";
    let rows = match rows {
        Ok(rows) => rows,
        Err(why) => return unknown(WHAT, why),
    };
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| row.verdict == Verdict::Wrong)
        .map(|row| format!("{}/{}", row.namespace, row.name))
        .collect();
    match wrong.len() {
        0 => ok(WHAT, format!("{}, and nothing is wrong with any", count(rows.len(), "Database"))),
        many => warn(
            WHAT,
            format!(
                "{} of {}: something is wrong with {}",
                many,
                count(rows.len(), "Database"),
                listed(&wrong)
            ),
            format!("`{} status NAME --namespace NAMESPACE` says what", program()),
        ),
    }
}

#[cfg(test)]
mod tests;
