//! The way to the primary: an EndpointSlice that the leader writes in the act of becoming leader.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use keelson_api::instance::{Names, labels, ports};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::environment::Environment;

/// Leads writers here.
pub async fn lead_here(client: &Client, here: &Environment) -> Result<(), kube::Error> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &here.namespace);
    let name = Names(&here.database).writers();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(slice(here))).await.map(drop)
}

fn slice(here: &Environment) -> Value {
    let name = Names(&here.database).writers();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "ownerReferences": [here.owner()],
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "keelson.dev",
                labels::DATABASE: here.database,
            }
        },
        "addressType": if here.address.is_ipv6() { "IPv6" } else { "IPv4" },
        "ports": [{ "name": "postgres", "port": ports::POSTGRES, "protocol": "TCP" }],
        "endpoints": [{
            "addresses": [here.address],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "targetRef": {
                "kind": "Pod", "name": here.pod, "namespace": here.namespace, "uid": here.uid
            }
        }]
    })
}
