//! Waiting until a cluster works, and saying which part does not.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::{Api, Client};

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::machine::{HUB, Machine, explain};
use crate::network::Node;
use crate::wait::{Look, until, until_blocking};

const MINUTE: Duration = Duration::from_secs(60);

/// A cluster that is starting.
pub(super) struct Wait<'a> {
    pub(super) layout: &'a Layout,
    pub(super) client: &'a Client,
    pub(super) hub: &'a Machine,
}

impl Wait<'_> {
    pub(super) async fn for_api_server(&self) -> Result<()> {
        let started = until("the API server", MINUTE, || async {
            // The others end again and again until it is there, as they should.
            match crash_loop(self.layout, HUB, &["etcd", "kube-apiserver"]) {
                Some(why) => Look::Never(why),
                None => look_at_api_server(self.client).await,
            }
        });
        started.await.map_err(|error| self.blame(HUB, &error))
    }

    pub(super) async fn for_nodes(&self, count: u8) -> Result<()> {
        let nodes = Api::<NodeObject>::all(self.client.clone());
        for name in Node::all(count).map(Node::name) {
            let what = format!("{name} to be Ready");
            let ready = until(&what, 2 * MINUTE, || async {
                match crash_loop(self.layout, &name, &["containerd", "kubelet"]) {
                    Some(why) => Look::Never(why),
                    None => look_at_node(&nodes, &name).await,
                }
            });
            ready.await.map_err(|error| self.blame(&name, &error))?;
        }
        Ok(())
    }

    /// Without it no pod can be created in the namespace that everybody starts in.
    pub(super) async fn for_service_account(&self) -> Result<()> {
        let accounts = Api::<ServiceAccount>::default_namespaced(self.client.clone());
        let there = until("the default service account", MINUTE, || async {
            match accounts.get("default").await {
                Ok(_) => Look::There(()),
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        there.await.map_err(|error| self.blame(HUB, &error))
    }

    /// Waits until a server on the hub answers over HTTP.
    pub(super) fn for_answer(&self, address: &str, path: &str) -> Result<()> {
        // Debian's base system has no HTTP client, but a shell that opens sockets.
        let request = format!(
            "exec 3<>/dev/tcp/{}; printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3; head -n 1 <&3",
            address.replace(':', "/")
        );
        let answered = until_blocking(&format!("{address} to answer"), MINUTE, || {
            match self.hub.run(&["timeout", "2", "bash", "-c", &request]) {
                Ok(line) if line.starts_with("HTTP/") && !line.contains(" 503") => Look::There(()),
                Ok(line) => Look::NotYet(line),
                Err(error) => Look::NotYet(error.to_string()),
            }
        });
        answered.map_err(|error| self.blame(HUB, &error))
    }

    fn blame(&self, machine: &str, error: &Error) -> Error {
        let logs = self.layout.root().join("logs");
        let hint = format!("read the log, then `make cluster` once more; all logs are in {}", logs.display());
        explain(self.layout, machine, &error.to_string(), &hint)
    }
}

/// Waits until the API server says that it is ready.
pub(crate) async fn api_server_ready(client: &Client, deadline: Duration) -> Result<()> {
    until("the API server", deadline, || look_at_api_server(client)).await
}

async fn look_at_api_server(client: &Client) -> Look<()> {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
        return Look::Never("the request can't be made".into());
    };
    match client.request_text(request).await {
        Ok(text) if text == "ok" => Look::There(()),
        Ok(text) => Look::NotYet(text),
        Err(error) => Look::NotYet(error.to_string()),
    }
}

async fn look_at_node(nodes: &Api<NodeObject>, name: &str) -> Look<()> {
    let node = match nodes.get(name).await {
        Ok(node) => node,
        Err(error) => return Look::NotYet(error.to_string()),
    };
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
        Some(condition) if condition.status == "True" => Look::There(()),
        Some(condition) => Look::NotYet(condition.message.unwrap_or_default()),
        None => Look::NotYet("it has not said anything yet".into()),
    }
}

/// One of these components that ended so often that it will not come up by itself.
fn crash_loop(layout: &Layout, machine: &str, names: &[&str]) -> Option<String> {
    let status = Machine::find(layout, machine)?.status(layout)?;
    let ending = status.components.iter().filter(|(name, _)| names.contains(&name.as_str()));
    let (name, component) = ending.into_iter().find(|(_, component)| component.restarts > 8)?;
    Some(format!("{name} keeps ending ({})", component.last_end))
}
