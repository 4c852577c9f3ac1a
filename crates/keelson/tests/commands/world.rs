//! An API server that knows the kinds of Keelson, a namespace for each test, and the program as a person calls it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_api::v1::{Backup, Database};
use keelson_api::{crds, policy};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use testbed::{Look, shared_control_plane, until};

pub const DEADLINE: Duration = Duration::from_secs(120);

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Calls the program with this kubeconfig.
pub fn call(kubeconfig: &Path, arguments: &[&str]) -> Said {
    call_with(kubeconfig, arguments, "")
}

pub fn call_with(kubeconfig: &Path, arguments: &[&str], input: &str) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_keelson"))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap();
    Said {
        code: said.status.code().unwrap(),
        out: String::from_utf8(said.stdout).unwrap(),
        err: String::from_utf8(said.stderr).unwrap(),
    }
}

pub struct World {
    pub client: Client,
    pub namespace: String,
    pub kubeconfig: PathBuf,
}

impl World {
    pub async fn new(namespace: &str) -> World {
        let kubeconfig = shared_control_plane(|client| async move { prepare(&client).await });
        let client = client(&kubeconfig).await;
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        World { client, namespace: namespace.to_owned(), kubeconfig }
    }

    /// What the program says, in the namespace of the test.
    pub fn keelson(&self, arguments: &[&str]) -> Said {
        self.keelson_with(arguments, "")
    }

    pub fn keelson_with(&self, arguments: &[&str], input: &str) -> Said {
        call_with(&self.kubeconfig, &[arguments, &["--namespace", &self.namespace]].concat(), input)
    }

    pub async fn create(&self, name: &str, spec: Value) -> Database {
        let object = json!({
            "apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": name}, "spec": spec
        });
        let object: Database = serde_json::from_value(object).unwrap();
        self.databases().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Writes a status, as the operator would.
    pub async fn say(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.databases().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub fn databases(&self) -> Api<Database> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn prepare(client: &Client) {
    let params = PatchParams::apply("test");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in crds::crds().unwrap() {
        // Nobody converts here.
        crd.spec.conversion = None;
        let name = crd.metadata.name.clone().unwrap();
        definitions.patch(&name, &params, &Patch::Apply(&crd)).await.unwrap();
    }
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.patch(policy::NAME, &params, &Patch::Apply(policy::policy())).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.patch(policy::NAME, &params, &Patch::Apply(policy::binding())).await.unwrap();
    served(client).await;
}

/// Until the kinds are served.
pub async fn served(client: &Client) {
    let (databases, backups) = (Api::<Database>::all(client.clone()), Api::<Backup>::all(client.clone()));
    until("Databases and Backups are served", DEADLINE, || async {
        match (databases.list(&Default::default()).await, backups.list(&Default::default()).await) {
            (Ok(_), Ok(_)) => Look::There(()),
            (databases, backups) => Look::NotYet(format!("{:?} {:?}", databases.err(), backups.err())),
        }
    })
    .await
    .unwrap();
}

/// A condition, as the operator writes it.
pub fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-18T00:00:00Z"
    })
}
