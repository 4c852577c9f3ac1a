//! The testbed's cluster with Keelson's image on it and no Keelson, for one test at a time.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::{Cluster, Image, Look, until};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

pub const MINUTE: Duration = Duration::from_secs(60);
/// Where the operator lives.
pub const SYSTEM: &str = "keelson-system";
/// Where Databases are.
pub const SHOP: &str = "install-shop";
/// Where others are.
pub const OTHER: &str = "install-other";

pub const IMAGE: &str = "keelson:install-test";

static SERIAL: LazyLock<Mutex<()>> = LazyLock::new(|| Mutex::new(()));
static LOADED: OnceCell<()> = OnceCell::const_new();

pub struct Bed {
    pub cluster: Cluster,
    _turn: MutexGuard<'static, ()>,
}

impl Bed {
    /// Three namespaces, the operator's under the `restricted` level of pod security, and no trace of Keelson.
    pub async fn open() -> Bed {
        let turn = SERIAL.lock().await;
        let cluster = Cluster::from_env().await.unwrap();
        // Definitions come and go here, and every Database with them: never on somebody else's cluster.
        let scratch = cluster.testbed().unwrap().root().join("image-install");
        cluster.heal_all().unwrap();
        LOADED
            .get_or_init(|| async {
                let program = Path::new(env!("CARGO_BIN_EXE_keelson"));
                let image = Image::of_programs(IMAGE, &[("/keelson", program)], &scratch).unwrap();
                cluster.load_image(&image).unwrap();
            })
            .await;
        let bed = Bed { cluster, _turn: turn };
        bed.clear().await;
        for (name, level) in [(SYSTEM, "restricted"), (SHOP, "privileged"), (OTHER, "privileged")] {
            let labels = json!({ "pod-security.kubernetes.io/enforce": level });
            let namespace = json!({ "metadata": { "name": name, "labels": labels } });
            let namespaces = Api::<Namespace>::all(bed.cluster.client());
            namespaces
                .create(&PostParams::default(), &serde_json::from_value(namespace).unwrap())
                .await
                .unwrap();
        }
        bed
    }

    pub async fn close(self) {
        self.clear().await;
    }

    async fn clear(&self) {
        self.uninstall();
        self.release().await;
        let crds = ["databases.keelson.dev", "backups.keelson.dev", "apps.keelson.dev"];
        let namespaces = [SYSTEM, SHOP, OTHER];
        for (kind, names) in [("crd", crds), ("namespace", namespaces)] {
            let words = ["delete", kind, "--ignore-not-found", "--timeout=2m"];
            self.cluster.kubectl(&[&words[..], &names].concat()).unwrap();
        }
    }

    /// Lets Databases go that nobody looks after any more.
    pub async fn release(&self) {
        for namespace in [SHOP, OTHER] {
            let databases = self.databases("v1", namespace);
            // Where there is no definition there are no Databases.
            for database in databases.list(&ListParams::default()).await.map_or(Vec::new(), |list| list.items)
            {
                let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                let name = database.metadata.name.unwrap();
                databases.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
            // Nobody waits for what they would do on their way out, or for others in their place.
            let kinds = "statefulsets,pods";
            let words = ["delete", kinds, "--all", "--force", "--grace-period=0", "--namespace", namespace];
            self.cluster.kubectl(&words).unwrap();
        }
    }

    /// Installs or upgrades, and waits until all of it is ready, a minute at most.
    pub fn install(&self, chart: &Path, set: &[&str]) -> testbed::Result<String> {
        let chart = chart.display().to_string();
        let (repository, tag) = IMAGE.split_once(':').unwrap();
        let image = [format!("image.repository={repository}"), format!("image.tag={tag}")];
        let mut words = vec!["upgrade", "--install", "keelson", &chart, "--namespace", SYSTEM];
        words.extend(["--wait", "--timeout", "60s"]);
        for value in image.iter().map(String::as_str).chain(set.iter().copied()) {
            words.extend(["--set", value]);
        }
        self.cluster.helm(&words)
    }

    pub fn uninstall(&self) {
        let words = ["uninstall", "keelson", "--namespace", SYSTEM, "--ignore-not-found", "--wait"];
        self.cluster.helm(&words).unwrap();
    }

    /// Databases, as one version shows them.
    pub fn databases(&self, version: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("keelson.dev", version, "Database"));
        Api::namespaced_with(self.cluster.client(), namespace, &kind)
    }

    pub async fn create(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> kube::Result<DynamicObject> {
        let object = json!({
            "apiVersion": format!("keelson.dev/{version}"), "kind": "Database",
            "metadata": { "name": name }, "spec": spec,
        });
        let object = serde_json::from_value(object).unwrap();
        self.databases(version, namespace).create(&PostParams::default(), &object).await
    }

    /// Waits until the operator has said something of a Database.
    pub async fn looked_after(&self, namespace: &str, name: &str) {
        let databases = self.databases("v1", namespace);
        until(&format!("{namespace}/{name} to be looked after"), MINUTE, || async {
            let status = databases.get(name).await.unwrap().data["status"].clone();
            if status["phase"].is_string() { Look::There(()) } else { Look::NotYet(status.to_string()) }
        })
        .await
        .unwrap();
    }

    pub async fn pods(&self) -> Vec<Pod> {
        let pods = Api::<Pod>::namespaced(self.cluster.client(), SYSTEM);
        pods.list(&ListParams::default().labels("app.kubernetes.io/name=keelson")).await.unwrap().items
    }

    pub async fn definition(&self) -> CustomResourceDefinition {
        Api::all(self.cluster.client()).get("databases.keelson.dev").await.unwrap()
    }

    pub async fn webhook(&self) -> ValidatingWebhookConfiguration {
        Api::all(self.cluster.client()).get("databases.keelson.dev").await.unwrap()
    }

    /// How often definition and webhook have changed.
    pub async fn generations(&self) -> [i64; 2] {
        [self.definition().await.metadata.generation, self.webhook().await.metadata.generation]
            .map(Option::unwrap)
    }

    /// The authorities that API servers trust for conversion and for admission.
    pub async fn bundles(&self) -> [Option<Vec<u8>>; 2] {
        let conversion = self.definition().await.spec.conversion.and_then(|conversion| conversion.webhook);
        let admission = self.webhook().await.webhooks.and_then(|webhooks| webhooks.into_iter().next());
        [
            conversion.and_then(|webhook| webhook.client_config?.ca_bundle).map(|bundle| bundle.0),
            admission.and_then(|webhook| webhook.client_config.ca_bundle).map(|bundle| bundle.0),
        ]
    }
}
