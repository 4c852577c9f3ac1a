//! A whole operator: a `Greeting` owns a ConfigMap with a greeting in it.
//!
//! `greeting crd` prints the definition of the kind, `greeting rules` the rights that it needs, and
//! `greeting` alone looks after all Greetings of the cluster that `KUBECONFIG` leads to.

use std::collections::BTreeMap;
use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use keelson_kit::conditions::Finding;
use keelson_kit::telemetry::{self, Metrics};
use keelson_kit::{Kind, Manager, Next, Reconciler, Round, admin, client, manager, serve};
use kube::core::ObjectMeta;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whom to greet.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
pub struct GreetingSpec {
    /// The name of who is greeted.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
}

/// How it went.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GreetingStatus {
    /// The generation that this speaks of.
    pub observed_generation: Option<i64>,
    /// `Ready`, once the greeting can be read.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Greets.
pub struct Greeter;

impl Reconciler for Greeter {
    type Object = Greeting;
    type Error = keelson_kit::Error;

    async fn reconcile(&self, greeting: &Greeting, round: &mut Round) -> Result<Next, Self::Error> {
        let text = format!("Hello, {}!", greeting.spec.name);
        let wanted = ConfigMap {
            metadata: ObjectMeta { name: Some(greeting.name_any()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([("text".to_owned(), text)])),
            ..ConfigMap::default()
        };
        round.apply(&wanted).await?;

        let ready = Finding {
            kind: "Ready".to_owned(),
            holds: Some(true),
            reason: "Greeted".to_owned(),
            message: "the greeting is in the ConfigMap of the same name".to_owned(),
        };
        let known = greeting.status.clone().unwrap_or_default().conditions;
        let status = GreetingStatus {
            observed_generation: greeting.metadata.generation,
            conditions: round.conditions(&known, &[ready]),
        };
        round.set_status(&status).await?;
        Ok(Next::Change)
    }
}

/// The operator, on a cluster.
pub fn operator(client: kube::Client, metrics: Metrics) -> Manager {
    Manager::new("greeter", "example.dev", client, metrics).look_after(Kind::new(Greeter).owns::<ConfigMap>())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        print!("{}", serde_yaml_ng::to_string(&Greeting::crd())?);
        return Ok(());
    }
    let telemetry = telemetry::start(telemetry::Settings::from_env("greeter", env!("CARGO_PKG_VERSION")))?;
    let metrics = Metrics::new("greeter");
    let operator = operator(client::connect(Default::default(), &metrics).await?, metrics.clone());
    if std::env::args().nth(1).as_deref() == Some("rules") {
        let (everywhere, here) = operator.rules();
        print!("{}", serde_yaml_ng::to_string(&[everywhere, here])?);
        return Ok(());
    }
    let (shown, asked) = (serve::listen(8080).await?, serve::listen(8081).await?);
    tokio::spawn(admin::serve(shown, asked, metrics, operator.health(), std::future::pending()));
    operator.run(manager::told_to_stop()).await;
    telemetry.shutdown().await;
    Ok(())
}
