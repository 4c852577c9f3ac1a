//! The pod that writes all the time, on a node where the leader is not.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use keelson_rig::clock::now;
use keelson_rig::history::{self, Acknowledged};
use keelson_rig::objects::{DEADLINE, create};
use kube::api::{Api, DeleteParams, LogParams};
use serde_json::{Value, json};
use testbed::{Cluster, Image, Look, Node, until};

use super::site::Site;
use super::writer;
use crate::error::{Asking, During, Result};

const CLIENT: &str = "client";
const IMAGE: &str = "bench:failover";
/// So many lines are more than it writes in a moment, failures and all.
const LATEST: i64 = 20;

/// Puts the client's image on all nodes: this program.
pub(super) fn load(cluster: &Cluster) -> Result<()> {
    let program = std::env::current_exe().during("looking for", "this program")?;
    let scratch = cluster.testbed()?.root().join("image-client");
    let image = Image::of_programs(IMAGE, &[("/bench", &program)], &scratch)?;
    Ok(cluster.load_image(&image)?)
}

/// A client at work.
pub(super) struct Client<'a> {
    site: &'a Site<'a>,
    pods: Api<Pod>,
}

impl<'a> Client<'a> {
    /// Starts one on a node, and waits until it has written for a while.
    pub(super) async fn start(site: &'a Site<'a>, node: Node, address: &str) -> Result<Client<'a>> {
        let pods: Api<Pod> = site.api();
        create(&pods, pod(node, address)).await?;
        let client = Client { site, pods };
        client.writes_since(now() + 1000, DEADLINE).await?;
        Ok(client)
    }

    async fn latest(&self, lines: Option<i64>) -> Result<Vec<Acknowledged>> {
        let which = LogParams { tail_lines: lines, ..LogParams::default() };
        let log = self.pods.logs(CLIENT, &which).await.asking("reading what the client says")?;
        Ok(history::read(&log))
    }

    /// Waits until a write was acknowledged that was sent after a moment.
    pub(super) async fn writes_since(&self, moment: u64, deadline: Duration) -> Result<()> {
        let written = until("a write to be acknowledged", deadline, || async {
            match self.latest(Some(LATEST)).await {
                Ok(latest) if latest.iter().any(|one| one.sent > moment) => Look::There(()),
                Ok(latest) => Look::NotYet(format!("the last one: {:?}", latest.last())),
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        Ok(written.await?)
    }

    /// Ends it. Returns all that it was told.
    pub(super) async fn finish(self) -> Result<Vec<Acknowledged>> {
        let history = self.latest(None).await?;
        self.pods.delete(CLIENT, &DeleteParams::default()).await.asking("ending the client")?;
        let gone = until("the client to be gone", DEADLINE, || async {
            match self.pods.get_opt(CLIENT).await {
                Ok(None) => Look::There(()),
                Ok(Some(_)) => Look::NotYet("it is still there".to_owned()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        gone.await?;
        Ok(history)
    }

    /// For people: the end of what it said.
    pub(super) fn says(&self) -> String {
        self.site.kubectl(&["logs", CLIENT, "--tail=20"]).unwrap_or_else(|error| error.to_string())
    }
}

fn pod(node: Node, address: &str) -> Value {
    let uri = json!({ "secretKeyRef": { "name": "orders-app", "key": "uri" } });
    json!({
        "metadata": { "name": CLIENT },
        "spec": {
            "nodeName": node.name(),
            // With none, the pod would be gone before its program has ended.
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [{
                "name": CLIENT, "image": IMAGE, "imagePullPolicy": "Never", "args": ["write"],
                "env": [
                    { "name": writer::URI, "valueFrom": uri },
                    { "name": writer::ADDRESS, "value": address },
                ],
            }],
        },
    })
}
