//! Gives claims their volumes. One runs on each node and cares for the volumes of that node: makes
//! one when the scheduler has chosen the node for a claim, grows it when the claim grows, removes
//! it when its claim is gone and the class says so.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::client::connect;
use crate::disk;
use crate::error::{Asking, Error, Result};
use crate::network::Node;

/// The name that storage classes call it by.
pub(crate) const PROVISIONER: &str = "testbed.keelson.dev/disk";

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const RETRY: Duration = Duration::from_secs(1);

/// Serves the claims of one node, for ever.
pub(crate) async fn serve(node: Node, kubeconfig: &Path) -> Result<()> {
    let client = connect(kubeconfig).await?;
    let (claims, claim_writer) = reflector::store::<PersistentVolumeClaim>();
    let (volumes, volume_writer) = reflector::store::<PersistentVolume>();
    let watching = || watcher::Config::default().timeout(60);
    let claim_events = watcher(Api::all(client.clone()), watching()).default_backoff().reflect(claim_writer);
    let volume_events =
        watcher(Api::all(client.clone()), watching()).default_backoff().reflect(volume_writer);
    let mut events = std::pin::pin!(futures::stream::select(
        claim_events.map(|event| event.map(drop)),
        volume_events.map(|event| event.map(drop)),
    ));
    let provisioner = Provisioner { node, client, claims, volumes };
    let mut again = false;
    loop {
        tokio::select! {
            Some(event) = events.next() => if let Err(error) = event {
                eprintln!("watching: {error}");
            },
            () = tokio::time::sleep(RETRY), if again => {}
        }
        again = !provisioner.sync().await;
    }
}

struct Provisioner {
    node: Node,
    client: Client,
    claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
}

impl Provisioner {
    /// Does what there is to do; says whether all of it went well.
    async fn sync(&self) -> bool {
        let mut well = true;
        for claim in self.claims.state() {
            if let Err(error) = self.serve_claim(&claim).await {
                eprintln!("claim {}/{}: {error}", claim.namespace().unwrap_or_default(), claim.name_any());
                well = false;
            }
        }
        for volume in self.volumes.state() {
            if let Err(error) = self.clean_up(&volume).await {
                eprintln!("volume {}: {error}", volume.name_any());
                well = false;
            }
        }
        well
    }

    async fn serve_claim(&self, claim: &PersistentVolumeClaim) -> Result<()> {
        if claim.annotations().get(STORAGE_PROVISIONER).map(String::as_str) != Some(PROVISIONER) {
            return Ok(());
        }
        let bytes = bytes_of(requested(claim))?;
        let volume_name = format!("pvc-{}", claim.uid().unwrap_or_default());
        let known = self.volumes.get(&reflector::ObjectRef::new(&volume_name));
        match known {
            None if claim.annotations().get(SELECTED_NODE) == Some(&self.node.name()) => {
                self.provision(claim, &volume_name, bytes).await
            }
            Some(volume) if self.is_mine(&volume) && bytes > bytes_of(capacity(&volume))? => {
                self.grow(claim, &volume_name, bytes).await
            }
            _ => Ok(()),
        }
    }

    async fn provision(&self, claim: &PersistentVolumeClaim, name: &str, bytes: u64) -> Result<()> {
        let spec = claim.spec.clone().unwrap_or_default();
        if spec.volume_mode.as_deref() == Some("Block") {
            return Err(Error::Refused("only file systems are provided here, no block devices".into()));
        }
        let class_name = spec.storage_class_name.unwrap_or_default();
        let classes = Api::<k8s_openapi::api::storage::v1::StorageClass>::all(self.client.clone());
        let class = classes.get(&class_name).await.asking(format!("reading storage class {class_name}"))?;
        disk::create(name, bytes)?;
        let volume = json!({
            "metadata": { "name": name, "annotations": { PROVISIONED_BY: PROVISIONER } },
            "spec": {
                "accessModes": spec.access_modes,
                "capacity": { "storage": requested(claim) },
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": claim.namespace(),
                    "name": claim.name_any(),
                    "uid": claim.uid(),
                },
                "local": { "path": disk::mount_point(name) },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [self.node.name()] },
                ]}]}},
                "persistentVolumeReclaimPolicy": class.reclaim_policy,
                "storageClassName": class_name,
                "volumeMode": "Filesystem",
            },
        });
        let volume = serde_json::from_value(volume).map_err(|error| Error::Refused(error.to_string()))?;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        match volumes.create(&PostParams::default(), &volume).await {
            Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
            other => other.map(drop).asking(format!("creating volume {name}")),
        }
    }

    async fn grow(&self, claim: &PersistentVolumeClaim, name: &str, bytes: u64) -> Result<()> {
        disk::grow(name, bytes)?;
        let capacity = json!({ "storage": requested(claim) });
        let patch = Patch::Merge(json!({ "spec": { "capacity": capacity } }));
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes
            .patch(name, &PatchParams::default(), &patch)
            .await
            .asking(format!("growing volume {name}"))?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(
            self.client.clone(),
            &claim.namespace().unwrap_or_default(),
        );
        let patch = Patch::Merge(json!({ "status": { "capacity": capacity, "conditions": null } }));
        let grown = claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await;
        grown.map(drop).asking(format!("telling claim {} that it has grown", claim.name_any()))
    }

    async fn clean_up(&self, volume: &PersistentVolume) -> Result<()> {
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if !self.is_mine(volume) || policy != Some("Delete") || phase != Some("Released") {
            return Ok(());
        }
        let name = volume.name_any();
        disk::remove(&name)?;
        match Api::<PersistentVolume>::all(self.client.clone()).delete(&name, &DeleteParams::default()).await
        {
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
            other => other.map(drop).asking(format!("deleting volume {name}")),
        }
    }

    fn is_mine(&self, volume: &PersistentVolume) -> bool {
        let ours = volume.annotations().get(PROVISIONED_BY).map(String::as_str) == Some(PROVISIONER);
        ours && node_of(volume) == Some(self.node)
    }
}

/// The node that has a volume.
pub(crate) fn node_of(volume: &PersistentVolume) -> Option<Node> {
    let terms = &volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?.node_selector_terms;
    terms.first()?.match_expressions.as_ref()?.first()?.values.as_ref()?.first()?.parse().ok()
}

fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

fn capacity(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")
}

/// A quantity of storage in bytes, rounded up to whole blocks.
fn bytes_of(quantity: Option<&Quantity>) -> Result<u64> {
    let text = quantity.map_or("", |quantity| quantity.0.as_str());
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => f64::NAN,
    };
    match number.parse::<f64>().map(|number| (number * factor).ceil()) {
        Ok(bytes) if bytes >= 1.0 => Ok((bytes as u64).next_multiple_of(4096)),
        _ => Err(Error::Refused(format!("{text:?} is no size that the testbed understands: try 10Gi"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        let bytes = |text: &str| bytes_of(Some(&Quantity(text.into())));
        assert_eq!(bytes("64Mi").unwrap(), 64 << 20);
        assert_eq!(bytes("1.5Gi").unwrap(), 3 << 29);
        assert_eq!(bytes("1G").unwrap(), 1_000_001_536);
        assert_eq!(bytes("8192").unwrap(), 8192);
        for wrong in ["", "Gi", "-1Gi", "1Qi", "0"] {
            assert!(bytes(wrong).unwrap_err().to_string().contains("10Gi"), "{wrong}");
        }
    }
}
