//! What is in the cluster from the start: the storage classes, the name service, the object store.

use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::components::{S3_BUCKET, S3_REGION};
use crate::error::{Asking, Result};
use crate::network::{DNS, DNS_SERVICE, S3, S3_PORT};
use crate::provisioner::PROVISIONER;

/// The namespace of the testbed's own objects.
pub const NAMESPACE: &str = "testbed";
/// The Service of the S3 server, and the Secret with all that one needs to use it.
pub const S3_NAME: &str = "s3";
/// The default storage class: a volume goes with its claim.
pub const STORAGE_CLASS: &str = "disk";
/// The storage class whose volumes stay.
pub const STORAGE_CLASS_KEPT: &str = "disk-kept";

/// Applies them all.
pub(crate) async fn apply_all(client: &Client, s3_keys: &[(String, String); 2]) -> Result<()> {
    let classes = Api::<StorageClass>::all(client.clone());
    for (name, policy, default) in
        [(STORAGE_CLASS, "Delete", "true"), (STORAGE_CLASS_KEPT, "Retain", "false")]
    {
        let class = json!({
            "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": default } },
            "provisioner": PROVISIONER,
            "reclaimPolicy": policy,
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": true,
        });
        apply(&classes, name, class).await?;
    }

    apply(&Api::<Namespace>::all(client.clone()), NAMESPACE, json!({})).await?;
    let dns = [("dns", "UDP", 53), ("dns-tcp", "TCP", 53)];
    outside_service(client, "kube-system", "kube-dns", Some(DNS_SERVICE), DNS, &dns).await?;
    outside_service(client, NAMESPACE, S3_NAME, None, S3, &[("http", "TCP", S3_PORT)]).await?;

    let [(_, access), (_, secret)] = s3_keys;
    let binding = json!({ "stringData": {
        "endpoint": format!("http://{S3_NAME}.{NAMESPACE}.svc.cluster.local:{S3_PORT}"),
        "region": S3_REGION,
        "bucket": S3_BUCKET,
        "accessKeyId": access,
        "secretAccessKey": secret,
    }});
    apply(&Api::<Secret>::namespaced(client.clone(), NAMESPACE), S3_NAME, binding).await
}

/// A Service for something that runs beside the nodes.
async fn outside_service(
    client: &Client,
    namespace: &str,
    name: &str,
    cluster_ip: Option<std::net::Ipv4Addr>,
    address: std::net::Ipv4Addr,
    ports: &[(&str, &str, u16)],
) -> Result<()> {
    let ports: Vec<Value> = ports
        .iter()
        .map(|(name, protocol, port)| json!({ "name": name, "protocol": protocol, "port": port }))
        .collect();
    let mut spec = json!({ "ports": ports });
    if let Some(ip) = cluster_ip {
        spec["clusterIP"] = json!(ip);
    }
    apply(&Api::<Service>::namespaced(client.clone(), namespace), name, json!({ "spec": spec })).await?;
    let slice = json!({
        "metadata": { "labels": { "kubernetes.io/service-name": name } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": ports,
    });
    apply(&Api::<EndpointSlice>::namespaced(client.clone(), namespace), name, slice).await
}

async fn apply<K>(api: &Api<K>, name: &str, mut object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object["metadata"]["name"] = json!(name);
    let params = PatchParams::apply("testbed").force();
    api.patch(name, &params, &Patch::Apply(&object))
        .await
        .asking(format!("applying {} {name}", K::kind(&())))?;
    Ok(())
}
