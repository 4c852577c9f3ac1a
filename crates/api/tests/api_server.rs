//! The definitions and rules on a real API server.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use testbed::ControlPlane;

#[tokio::test]
async fn apply_all() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in keelson_api::crds::crds().unwrap() {
        if let Some(c) = crd.spec.conversion.as_mut() {
            c.strategy = "None".into();
            c.webhook = None;
        }
        let name = crd.metadata.name.clone().unwrap();
        let r = api.patch(&name, &PatchParams::apply("t"), &Patch::Apply(&crd)).await;
        match r {
            Ok(_) => println!("{name} ok"),
            Err(e) => println!("{name}: {e}"),
        }
    }
    let p =
        Api::<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy>::all(client.clone())
            .patch(
                "databases.keelson.dev",
                &PatchParams::apply("t"),
                &Patch::Apply(keelson_api::policy::policy()),
            )
            .await;
    println!("{:?}", p.map(|p| p.status));
    let p = Api::<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>::all(
        client.clone(),
    )
    .patch("databases.keelson.dev", &PatchParams::apply("t"), &Patch::Apply(keelson_api::policy::binding()))
    .await;
    println!("{:?}", p.map(|_| ()));
    let _ = Duration::ZERO;
}
