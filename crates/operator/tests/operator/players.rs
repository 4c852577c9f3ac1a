//! Those who are missing on a control plane without nodes, each as simple as will do: the StatefulSet
//! controller, the provisioner of volumes, kubelets, the garbage collector's part in orphaning, and the
//! agents of all instances.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::RoleBinding;
use keelson_api::instance::{Names, SETTINGS_KEY, annotations, fingerprint, labels};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// An image that can't be pulled.
pub const BAD_IMAGE: &str = "nowhere/postgres:0";

pub struct Players {
    sets: Api<StatefulSet>,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    configs: Api<ConfigMap>,
    bindings: Api<RoleBinding>,
    leases: Api<Lease>,
    /// Whether agents archive and make backups.
    back_up: bool,
    /// Who leads, and the epoch.
    leaders: HashMap<String, (String, u64)>,
}

type Played = Result<(), kube::Error>;

/// Something of this kind has changed.
fn touched<K>(api: &Api<K>) -> BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    watcher(api.clone(), watcher::Config::default()).map(drop).boxed()
}

/// What an agent says of backups: all is archived, and what is ordered is made.
fn backed_up(pod: &str, leads: bool, rule: &Value, report: &mut Value) {
    if leads && !rule.is_null() {
        report["archive"] = json!({"waiting": 0, "waitingBytes": 0, "backups": ["base_1"]});
    }
    let order = &rule["order"];
    if order["instance"] == pod {
        let id = format!("base_{}", order["uid"].as_str().unwrap());
        report["backup"] = json!({
            "uid": order["uid"], "phase": "Complete", "method": "full", "id": id, "readBytes": 100, "totalBytes": 100,
            "storedBytes": 50, "started": "2026-11-16T12:00:00Z", "finished": "2026-11-16T12:01:00Z"
        });
    }
}

/// What an image says of itself; one that does not say the minor version holds this one.
fn version_of(pod: &Pod) -> String {
    let image = pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap_or_default();
    let tag = image.rsplit(':').next().unwrap_or_default().to_owned();
    if tag.starts_with("17.") { tag } else { "17.5".to_owned() }
}

impl Players {
    pub fn new(client: Client, namespace: &str) -> Players {
        Players {
            sets: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            claims: Api::namespaced(client.clone(), namespace),
            configs: Api::namespaced(client.clone(), namespace),
            bindings: Api::namespaced(client.clone(), namespace),
            leases: Api::namespaced(client, namespace),
            back_up: namespace.starts_with("backs-up")
                || namespace.starts_with("drills")
                || namespace == "rights",
            leaders: HashMap::new(),
        }
    }

    /// Until somebody ends it. What fails is tried again.
    pub async fn play(mut self) {
        let mut changes = stream::select_all([
            touched(&self.sets),
            touched(&self.pods),
            touched(&self.claims),
            touched(&self.configs),
            touched(&self.bindings),
            touched(&self.leases),
        ]);
        loop {
            let _ = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
            // What comes together is looked at together.
            tokio::time::sleep(Duration::from_millis(30)).await;
            while let Some(Some(())) = changes.next().now_or_never() {}
            let _ = self.turn().await;
        }
    }

    async fn turn(&mut self) -> Played {
        // In this order: pods that went after their StatefulSet are not made anew for it.
        let pods = self.pods.list(&Default::default()).await?.items;
        let sets = self.sets.list(&Default::default()).await?.items;
        if sets.is_empty() {
            return Ok(());
        }
        self.let_go(&pods).await?;
        self.drills(&pods).await?;
        for set in &sets {
            let own: Vec<&Pod> = pods
                .iter()
                .filter(|pod| pod.labels().get(labels::DATABASE) == Some(&set.name_any()))
                .collect();
            if set.metadata.deletion_timestamp.is_some() {
                let finalizers = json!({"metadata": {"finalizers": null}});
                self.sets.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(finalizers)).await?;
                continue;
            }
            self.controller(set, &own).await?;
            self.agents(&set.name_any(), &own).await?;
        }
        Ok(())
    }

    /// What a drill says of itself: it has found all to be well.
    async fn drills(&self, pods: &[Pod]) -> Played {
        let silent = |pod: &&Pod| {
            pod.labels().contains_key(labels::DRILL_OF)
                && !pod.annotations().contains_key(annotations::DRILL_REPORT)
        };
        for pod in pods.iter().filter(silent) {
            let report = json!({
                "phase": "Succeeded", "started": "2026-11-16T12:00:00Z", "finished": "2026-11-16T12:01:00Z",
                "backup": "base_1", "answeredSeconds": 40, "checks": {"databases": 3, "tables": 160, "indexes": 320}
            });
            let said = json!({"metadata": {"annotations": {annotations::DRILL_REPORT: report.to_string()}}});
            self.pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(said)).await?;
        }
        Ok(())
    }

    /// A volume that is to go does so when no pod has it any more.
    async fn let_go(&self, pods: &[Pod]) -> Played {
        let claims = self.claims.list(&Default::default()).await?.items;
        for claim in claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()) {
            let name = claim.name_any();
            if !pods.iter().any(|pod| name == format!("data-{}", pod.name_any())) {
                let finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                self.claims.patch(&name, &PatchParams::default(), &finalizers).await?;
            }
        }
        Ok(())
    }

    async fn controller(&self, set: &StatefulSet, pods: &[&Pod]) -> Played {
        let name = set.name_any();
        let spec = set.spec.clone().unwrap_or_default();
        let replicas = u32::try_from(spec.replicas.unwrap_or_default()).unwrap();
        for ordinal in 0..replicas {
            let pod = Names(&name).pod(ordinal);
            if pods.iter().any(|one| one.name_any() == pod) {
                continue;
            }
            let template = spec.volume_claim_templates.iter().flatten().next().unwrap();
            let mut claim = template.clone();
            claim.metadata.name = Some(Names(&name).claim(ordinal));
            claim.spec.as_mut().unwrap().storage_class_name.get_or_insert_with(|| "grows".to_owned());
            if self.claims.create(&PostParams::default(), &claim).await.is_ok() {
                let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
                self.claims.patch_status(&claim.name_any(), &PatchParams::default(), &bound).await?;
            }
            let mut made = json!({"metadata": {"name": pod}, "spec": spec.template.spec});
            let meta = spec.template.metadata.clone().unwrap_or_default();
            made["metadata"]["labels"] = json!(meta.labels);
            made["metadata"]["annotations"] = json!(meta.annotations);
            let volumes = made["spec"]["volumes"].as_array_mut().unwrap();
            volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": claim.name_any()}}));
            self.pods.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await?;
        }
        for pod in pods.iter().filter(|pod| Names(&name).ordinal(&pod.name_any()) >= Some(replicas)) {
            self.pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn agents(&mut self, name: &str, pods: &[&Pod]) -> Played {
        // Without their rights they could do nothing.
        if self.bindings.get_opt(name).await?.is_none() {
            return Ok(());
        }
        let Some(config) = self.configs.get_opt(&Names(name).config()).await? else { return Ok(()) };
        let Some(settings) = config.data.and_then(|mut data| data.remove(SETTINGS_KEY)) else {
            return Ok(());
        };
        let (leader, epoch) = self.elect(name, pods).await?;
        for pod in pods {
            let bad = pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some(BAD_IMAGE);
            if bad {
                let waiting = json!({"reason": "ErrImagePull", "message": "no such image"});
                let container = json!({
                    "name": "database", "ready": false, "restartCount": 0, "image": BAD_IMAGE, "imageID": "",
                    "state": {"waiting": waiting}
                });
                self.status(pod, json!({"containerStatuses": [container]})).await?;
                continue;
            }
            let leads = pod.name_any() == leader;
            let mut report = json!({
                "role": if leads { "primary" } else { "replica" }, "timeline": epoch, "lagBytes": 0, "writable": leads,
                "version": version_of(pod), "systemId": "7", "pendingRestart": false, "settings": fingerprint(&settings),
                "leader": leader, "epoch": epoch
            });
            let annotation = |key: &str| pod.annotations().get(key).cloned();
            let known: Value = annotation(annotations::REPORT)
                .and_then(|known| serde_json::from_str(&known).ok())
                .unwrap_or_default();
            // A new value of this one waits for a restart.
            let wants =
                serde_json::from_str::<Value>(&settings).unwrap()["parameters"]["max_connections"].clone();
            let told = annotation(annotations::RESTART);
            let restarted = told.is_some() && known["restarted"] != json!(told);
            report["restarted"] = json!(told);
            report["running"] =
                if restarted || known.is_null() { wants.clone() } else { known["running"].clone() };
            report["pendingRestart"] = json!(report["running"] != wants);
            if self.back_up {
                let rule = serde_json::from_str::<Value>(&settings).unwrap()["backup"].clone();
                backed_up(&pod.name_any(), leads, &rule, &mut report);
            }
            if report != known {
                let patch = json!({"metadata": {"annotations": {annotations::REPORT: report.to_string()}}});
                self.pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            self.status(pod, json!({"conditions": [{"type": "Ready", "status": "True"}]})).await?;
        }
        Ok(())
    }

    async fn status(&self, pod: &Pod, status: Value) -> Played {
        let known = serde_json::to_value(pod.status.clone().unwrap_or_default()).unwrap();
        let there = |field: &str, key: &str| known[field][0][key] == status[field][0][key];
        if there("conditions", "type") && there("containerStatuses", "state") {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }

    /// The leader stays while its pod does, unless it is asked to hand over.
    async fn elect(&mut self, name: &str, pods: &[&Pod]) -> Result<(String, u64), kube::Error> {
        let lease = Names(name).lease();
        let found = self.leases.get_opt(&lease).await?;
        let asked =
            found.as_ref().and_then(|lease| lease.annotations().get(annotations::HANDOVER_TO).cloned());
        let (leader, epoch) = self.leaders.get(name).cloned().unwrap_or_default();
        let there = |name: &str| pods.iter().any(|pod| pod.name_any() == name);
        let best = pods.iter().map(|pod| pod.name_any()).min().unwrap_or_default();
        let next = match asked {
            Some(asked) if there(&asked) => asked,
            _ if there(&leader) => leader.clone(),
            _ => best,
        };
        let now = if next == leader { (leader, epoch) } else { (next, epoch + 1) };
        self.leaders.insert(name.to_owned(), now.clone());
        let labels = BTreeMap::from([(labels::DATABASE, name)]);
        let wanted = json!({
            "metadata": {"name": lease, "labels": labels, "annotations": {annotations::HANDOVER_TO: null}},
            "spec": {"holderIdentity": now.0}
        });
        match found {
            None => {
                let mut made = wanted;
                made["metadata"]["annotations"] = json!({});
                self.leases.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await?;
            }
            Some(found) => {
                let holder = found.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                let asked = found.annotations().contains_key(annotations::HANDOVER_TO);
                if holder.as_deref() != Some(&now.0) || asked {
                    self.leases.patch(&lease, &PatchParams::default(), &Patch::Merge(wanted)).await?;
                }
            }
        }
        Ok(now)
    }
}
