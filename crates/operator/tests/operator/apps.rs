//! Apps, with a test that plays the controller of Deployments.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use keelson_api::v1::{App, AppStatus, Database};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::{Look, until};
use tokio::task::JoinHandle;

use crate::parallel::each;
use crate::way::Way;
use crate::world::{DEADLINE, Operator, World};

/// An image of which no pod becomes ready.
const BAD: &str = "nowhere/shop:bad";

/// Plays the controller of Deployments, for as long as it is there.
struct Deployer(JoinHandle<()>);

impl Drop for Deployer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Deployer {
    fn start(world: &World) -> Deployer {
        let (deployments, pods) = (world.api::<Deployment>(), world.api::<Pod>());
        Deployer(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let Ok(list) = deployments.list(&Default::default()).await else { continue };
                for deployment in list.items {
                    let _ = roll_out(&deployments, &pods, &deployment).await;
                }
            }
        }))
    }
}

async fn roll_out(
    deployments: &Api<Deployment>,
    pods: &Api<Pod>,
    deployment: &Deployment,
) -> Result<(), kube::Error> {
    let name = deployment.name_any();
    let spec = deployment.spec.clone().unwrap();
    let wanted = spec.replicas.unwrap();
    let image = spec.template.spec.clone().unwrap().containers[0].image.clone();
    let before = deployment.status.clone().and_then(|status| status.available_replicas).unwrap_or_default();
    let generation = deployment.metadata.generation;
    let progressing = |holds: bool, reason: &str| json!([{"type": "Progressing", "status": if holds { "True" } else { "False" }, "reason": reason}]);
    let bad = image.as_deref() == Some(BAD);
    let status = match bad {
        true => json!({
            "observedGeneration": generation, "replicas": before + 1, "updatedReplicas": 1, "readyReplicas": before,
            "availableReplicas": before, "conditions": progressing(false, "ProgressDeadlineExceeded")
        }),
        false => json!({
            "observedGeneration": generation, "replicas": wanted, "updatedReplicas": wanted,
            "readyReplicas": wanted, "availableReplicas": wanted,
            "conditions": progressing(true, "NewReplicaSetAvailable")
        }),
    };
    let pod = format!("{name}-bad");
    if bad && pods.get_opt(&pod).await?.is_none() {
        let template = spec.template.metadata.unwrap();
        let made = json!({
            "metadata": {"name": pod, "labels": template.labels, "annotations": template.annotations},
            "spec": spec.template.spec
        });
        pods.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await?;
        let waiting = json!({"containerStatuses": [{
            "name": "app", "ready": false, "restartCount": 0, "image": BAD, "imageID": "",
            "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
        }]});
        let waiting = Patch::Merge(json!({"status": waiting}));
        pods.patch_status(&pod, &PatchParams::default(), &waiting).await?;
        return Ok(());
    }
    if !bad {
        let _ =
            pods.delete(&pod, &DeleteParams { grace_period_seconds: Some(0), ..Default::default() }).await;
    }
    if deployment.status.as_ref().and_then(|status| status.observed_generation) != generation {
        let status = Patch::Merge(json!({"status": status}));
        deployments.patch_status(&name, &PatchParams::default(), &status).await?;
    }
    Ok(())
}

fn spec(fields: Value) -> Value {
    let mut spec = json!({"image": "shop:1", "replicas": 2, "ports": [{"name": "http", "port": 8080}]});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

async fn create(world: &World, fields: Value) {
    let object = json!({
        "apiVersion": "keelson.dev/v1", "kind": "App", "metadata": {"name": "shop"}, "spec": spec(fields)
    });
    let app: App = serde_json::from_value(object).unwrap();
    world.api::<App>().create(&PostParams::default(), &app).await.unwrap();
}

async fn change(world: &World, fields: Value) {
    world.patch::<App>("shop", json!({"spec": fields})).await;
}

/// Waits until the status of the newest spec is as somebody expects.
async fn until_said(world: &World, what: &str, holds: impl Fn(&AppStatus) -> bool) -> AppStatus {
    let apps = world.api::<App>();
    until(what, DEADLINE, || async {
        let Ok(app) = apps.get("shop").await else { return Look::NotYet("none".into()) };
        let status = app.status.unwrap_or_default();
        match status.observed_generation == app.metadata.generation && holds(&status) {
            true => Look::There(status),
            false => Look::NotYet(format!("{status:?}")),
        }
    })
    .await
    .unwrap()
}

async fn reaches(world: &World, phase: &str) -> AppStatus {
    until_said(world, &format!("the app to be {phase}"), |status| {
        status.phase.as_ref().is_some_and(|it| it.as_str() == phase)
    })
    .await
}

/// The reason of a condition, if it has this status.
fn reason<'a>(status: &'a AppStatus, kind: &str, word: &str) -> Option<&'a str> {
    let found = status.conditions.iter().find(|one| one.type_ == kind)?;
    (found.status == word).then_some(found.reason.as_str())
}

async fn deployment(world: &World) -> Value {
    json!(world.api::<Deployment>().get("shop").await.unwrap())
}

fn image(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// The account of pods, which a controller would make.
pub async fn account(world: &World) {
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    world.api::<ServiceAccount>().create(&PostParams::default(), &account).await.unwrap();
}

/// A Database as its own controller would have it.
async fn database(world: &World, ready: bool, revision: &str) {
    if world.api::<Database>().get_opt("orders").await.unwrap().is_none() {
        world.create("orders", json!({})).await;
    }
    let ready = json!([{
        "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "Test", "message": "as told",
        "lastTransitionTime": "2026-11-18T12:00:00Z"
    }]);
    let binding = json!({"name": "orders-app", "revision": revision});
    let status = Patch::Merge(json!({"status": {"conditions": ready, "binding": binding}}));
    world.api::<Database>().patch_status("orders", &PatchParams::default(), &status).await.unwrap();
}

async fn begin(namespace: &str) -> (World, Deployer, Operator) {
    let world = World::quiet(namespace).await;
    account(&world).await;
    let deployer = Deployer::start(&world);
    let operator = world.app_operator_on(Way::clear()).await;
    (world, deployer, operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_is_made_kept_as_it_should_be_and_costs_nothing_while_it_is() {
    let (world, _deployer, operator) = begin("app-made").await;
    create(&world, json!({})).await;
    let status = reaches(&world, "Running").await;
    assert_eq!(
        (status.replicas, status.ready_replicas, status.updated_replicas),
        (Some(2), Some(2), Some(2))
    );
    operator.is_quiet().await;
    let writes = operator.writes();
    world.patch::<App>("shop", json!({"metadata": {"labels": {"colour": "blue"}}})).await;
    operator.is_quiet().await;
    assert_eq!(operator.writes(), writes, "a steady app costs no write");
    operator.stop().await;

    // Another process finds all as it should be.
    let operator = world.app_operator_on(Way::clear()).await;
    operator.is_quiet().await;
    let written = operator.way.written();
    assert!(written.iter().all(|write| write.resource == "leases"), "{written:?}");

    // What somebody else changes or takes away is put right.
    let containers = json!([{"name": "app", "image": "evil:1"}]);
    let evil = json!({"spec": {"replicas": 7, "template": {"spec": {"containers": containers}}}});
    let params = PatchParams { field_manager: Some("somebody".into()), ..PatchParams::default() };
    let deployments = world.api::<Deployment>();
    deployments.patch("shop", &params, &Patch::Strategic(evil)).await.unwrap();
    world.api::<Service>().delete("shop", &Default::default()).await.unwrap();
    until("children to be as they were", DEADLINE, || async {
        let (now, service) =
            (deployment(&world).await, world.api::<Service>().get_opt("shop").await.unwrap());
        match image(&now) == "shop:1" && now["spec"]["replicas"] == 2 && service.is_some() {
            true => Look::There(()),
            false => Look::NotYet(now["spec"].to_string()),
        }
    })
    .await
    .unwrap();

    // As `kubectl scale` and an autoscaler of somebody's own do.
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let scaled = world.api::<App>().patch_scale("shop", &PatchParams::default(), &scale).await.unwrap();
    assert_eq!(scaled.status.unwrap().selector.as_deref(), Some("keelson.dev/app=shop"));
    let status = until_said(&world, "three pods", |status| status.ready_replicas == Some(3)).await;
    assert_eq!(status.desired_replicas, Some(3));
    change(&world, json!({"replicas": 1, "ports": []})).await;
    until("what is not asked for any more to go", DEADLINE, || async {
        let service = world.api::<Service>().get_opt("shop").await.unwrap();
        let disruption = world.api::<PodDisruptionBudget>().get_opt("shop").await.unwrap();
        match (service, disruption) {
            (None, None) => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_that_does_not_become_ready_is_taken_back_and_stays_so_until_the_spec_changes() {
    let (world, _deployer, operator) = begin("app-undone").await;
    create(&world, json!({})).await;
    reaches(&world, "Running").await;
    change(&world, json!({"image": BAD})).await;
    let status = until_said(&world, "it to be taken back", |status| {
        reason(status, "Degraded", "True") == Some("ImagePull") && status.updated_replicas == Some(2)
    })
    .await;
    assert_eq!(
        (reason(&status, "Ready", "True"), status.ready_image.as_deref()),
        (Some("Available"), Some("shop:1"))
    );
    operator.is_quiet().await;
    assert_eq!(image(&deployment(&world).await), "shop:1");
    let status = world.api::<App>().get("shop").await.unwrap().status.unwrap();
    assert_eq!(status.phase.unwrap().as_str(), "Degraded", "it is still said");
    operator.stop().await;

    // A process that knows nothing of it does not try it again.
    let operator = world.app_operator_on(Way::clear()).await;
    operator.is_quiet().await;
    assert_eq!(image(&deployment(&world).await), "shop:1");
    change(&world, json!({"image": "shop:2"})).await;
    reaches(&world, "Running").await;
    assert_eq!(image(&deployment(&world).await), "shop:2");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_waits_for_its_database_and_is_rolled_when_its_credentials_change() {
    let (world, _deployer, operator) = begin("app-bound").await;
    create(&world, json!({"database": "orders"})).await;
    let status = reaches(&world, "Pending").await;
    assert_eq!(reason(&status, "Ready", "False"), Some("DatabaseMissing"));
    database(&world, false, "one").await;
    until_said(&world, "the database to be waited for", |status| {
        reason(status, "Ready", "False") == Some("DatabaseNotReady")
    })
    .await;
    assert!(world.api::<Deployment>().get_opt("shop").await.unwrap().is_none());
    database(&world, true, "one").await;
    let status = reaches(&world, "Running").await;
    assert_eq!(status.binding.as_deref(), Some("orders-app"));

    // A failover, seen from here.
    operator.is_quiet().await;
    let before = deployment(&world).await["metadata"]["generation"].clone();
    database(&world, false, "one").await;
    until_said(&world, "the failover to be said", |status| {
        reason(status, "DatabaseReady", "False").is_some()
    })
    .await;
    database(&world, true, "one").await;
    until_said(&world, "the database to be back", |status| reason(status, "DatabaseReady", "True").is_some())
        .await;
    assert_eq!(deployment(&world).await["metadata"]["generation"], before, "nothing was restarted");

    database(&world, true, "two").await;
    until("the other credentials to be rolled out", DEADLINE, || async {
        let notes = deployment(&world).await["spec"]["template"]["metadata"]["annotations"].clone();
        match notes["keelson.dev/credentials"] == "two" {
            true => Look::There(()),
            false => Look::NotYet(notes.to_string()),
        }
    })
    .await
    .unwrap();
    reaches(&world, "Running").await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_says_how_many_pods_there_are_and_nobody_argues() {
    let (world, _deployer, operator) = begin("app-scaled").await;
    create(&world, json!({"replicas": 3})).await;
    reaches(&world, "Running").await;
    change(&world, json!({"autoscale": {"min": 2, "max": 6}})).await;
    reaches(&world, "Running").await;
    let autoscalers = world.api::<HorizontalPodAutoscaler>();
    until("an autoscaler", DEADLINE, || async {
        match autoscalers.get_opt("shop").await.unwrap() {
            Some(_) => Look::There(()),
            None => Look::NotYet("none".into()),
        }
    })
    .await
    .unwrap();
    operator.is_quiet().await;
    assert_eq!(deployment(&world).await["spec"]["replicas"], 3, "the number stays what it was");
    // As an autoscaler does.
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let params = PatchParams { field_manager: Some("autoscaler".into()), ..PatchParams::default() };
    world.api::<Deployment>().patch_scale("shop", &params, &scale).await.unwrap();
    until_said(&world, "five pods", |status| status.ready_replicas == Some(5)).await;
    operator.is_quiet().await;
    assert_eq!(deployment(&world).await["spec"]["replicas"], 5, "nobody argues with it");
    change(&world, json!({"image": "shop:2"})).await;
    until_said(&world, "the next revision", |status| status.ready_image.as_deref() == Some("shop:2")).await;
    assert_eq!(deployment(&world).await["spec"]["replicas"], 5, "a roll-out changes no number");
    change(&world, json!({"autoscale": null})).await;
    until_said(&world, "as many as are asked for", |status| status.ready_replicas == Some(3)).await;
    assert!(autoscalers.get_opt("shop").await.unwrap().is_none());
    operator.stop().await;
}

/// Creation, a roll-out and one that is taken back, with an operator that dies with its k-th write. Returns whether it
/// came to that.
async fn dies_with(k: usize) -> bool {
    let world = World::quiet(&format!("app-dies-{k}")).await;
    account(&world).await;
    let _deployer = Deployer::start(&world);
    create(&world, json!({})).await;
    let done = AtomicUsize::new(0);
    let story = || async {
        let acts =
            [("shop:1", "Running", "shop:1"), ("shop:2", "Running", "shop:2"), (BAD, "Degraded", "shop:2")];
        for (number, (image, phase, runs)) in acts.into_iter().enumerate().skip(done.load(Ordering::SeqCst)) {
            change(&world, json!({"image": image})).await;
            until_said(&world, image, |status| {
                status.phase.as_ref().is_some_and(|it| it.as_str() == phase)
                    && status.ready_image.as_deref() == Some(runs)
                    && status.updated_replicas == Some(2)
            })
            .await;
            done.store(number + 1, Ordering::SeqCst);
        }
        // What comes after the end counts too.
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let operator = world.app_operator_on(Way::to_death(k)).await;
    let died = operator.dies_before(story()).await;
    let operator = world.app_operator_on(Way::clear()).await;
    story().await;
    operator.is_quiet_for(Duration::from_secs(1)).await;
    let written = operator.way.written();
    operator.stop().await;
    let now = deployment(&world).await;
    let notes = &now["metadata"]["annotations"];
    assert_eq!(image(&now), "shop:2", "death with write {k}");
    assert!(
        notes["keelson.dev/last-ready"].as_str().unwrap().contains("shop:2"),
        "death with write {k}: {notes}"
    );
    assert!(notes["keelson.dev/undone"].is_string(), "death with write {k}: {notes}");
    let generation = &now["metadata"]["generation"];
    // Made, rolled, tried and taken back, each once; and two notes of what was ready, which count too.
    assert_eq!(*generation, 6, "death with write {k}: {written:#?}");
    assert_eq!(world.all::<Service>().await.len(), 1);
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_end_the_same_whichever_write_was_the_operators_last() {
    let ends = each(1..=22_usize, |k| async move { dies_with(k).await }).await;
    let deaths = ends.into_iter().filter(|died| *died).count();
    assert!((9..=21).contains(&deaths), "it took {deaths} writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_is_deleted_takes_with_it_all_that_belongs_to_it() {
    let (world, _deployer, operator) = begin("app-deleted").await;
    create(&world, json!({})).await;
    reaches(&world, "Running").await;
    let uid = world.api::<App>().get("shop").await.unwrap().uid().unwrap();
    let owner = |meta: &kube::core::ObjectMeta| meta.owner_references.clone().unwrap()[0].uid == uid;
    assert!(world.all::<Deployment>().await.iter().all(|one| owner(&one.metadata)));
    assert!(world.all::<Service>().await.iter().all(|one| owner(&one.metadata)));
    assert!(world.all::<PodDisruptionBudget>().await.iter().all(|one| owner(&one.metadata)));
    world.api::<App>().delete("shop", &Default::default()).await.unwrap();
    until("it to be gone", DEADLINE, || async {
        match world.api::<App>().get_opt("shop").await.unwrap() {
            None => Look::There(()),
            Some(app) => Look::NotYet(format!("{:?}", app.metadata)),
        }
    })
    .await
    .unwrap();
    until("the metric to know", DEADLINE, || async {
        let page = operator.metrics.render();
        match page.contains("test_apps_total{namespace=\"app-deleted\"") {
            false => Look::There(()),
            true => Look::NotYet(page),
        }
    })
    .await
    .unwrap();
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_said() {
    let (world, _deployer, operator) = begin("app-taken").await;
    let service = json!({"metadata": {"name": "shop"}, "spec": {"ports": [{"name": "http", "port": 8080}]}});
    let service = serde_json::from_value(service).unwrap();
    world.api::<Service>().create(&PostParams::default(), &service).await.unwrap();
    create(&world, json!({})).await;
    let apps = world.api::<App>();
    until("it to be said", DEADLINE, || async {
        let status = apps.get("shop").await.unwrap().status.unwrap_or_default();
        match reason(&status, "Degraded", "True") {
            Some("NameTaken") => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    operator.stop().await;
}
