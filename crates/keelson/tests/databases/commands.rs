//! The commands for people, on databases that run.

use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::bed::{Bed, primary};

/// What a command printed, and how it ended.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Bed {
    /// Calls the program as a person would, with kubectl within reach.
    fn call(&self, arguments: &[&str]) -> Said {
        let root = self.cluster.testbed().unwrap().root().to_owned();
        let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut words = vec![arguments[0], "--namespace", &self.namespace];
        words.extend(&arguments[1..]);
        let said = Command::new(env!("CARGO_BIN_EXE_keelson"))
            .args(words)
            .env("KUBECONFIG", root.join("kubeconfig"))
            .env("PATH", path)
            .output()
            .unwrap();
        Said {
            code: said.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&said.stdout).into_owned(),
            err: String::from_utf8_lossy(&said.stderr).into_owned(),
        }
    }

    /// The same, where it is to end like that.
    fn ends(&self, code: i32, arguments: &[&str]) -> String {
        let Said { code: ended, out, err } = self.call(arguments);
        assert_eq!(ended, code, "{arguments:?}:\n{out}\n{err}\n{}", self.evidence());
        out
    }

    async fn uid(&self, pod: &str) -> String {
        let pods: Api<Pod> = self.api();
        pods.get(pod).await.unwrap().uid().unwrap()
    }
}

#[tokio::test]
async fn what_commands_say_of_a_database_that_runs_is_so_and_what_they_do_is_done() {
    let bed = Bed::open("commands").await;
    bed.create(json!({"replicas": 2, "storage": "1Gi"})).await;
    let database = bed.ready(2).await;
    shown(&bed, &primary(&database));
    planned(&bed);
    asked_and_logged(&bed);
    restarted(&bed, &primary(&database)).await;
    reported(&bed);
    bed.close().await;
}

fn shown(bed: &Bed, primary: &str) {
    let text = bed.ends(0, &["status", "orders"]);
    for words in [
        "2 of 2 ready",
        "└ orders-",
        &format!("{primary} leads in epoch"),
        "commits wait for 1 of the others",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    println!("{text}");
    let value: Value = serde_json::from_str(&bed.ends(0, &["status", "orders", "-o", "json"])).unwrap();
    assert_eq!(value["verdict"], "well");
    let nodes = value["instances"].as_array().unwrap().iter().filter(|one| one["node"].is_string()).count();
    assert_eq!(nodes, 2, "{value}");
    let examined = bed.call(&["doctor"]);
    println!("{}", examined.out);
    assert_eq!(examined.code, 0, "{}", examined.out);
}

/// Of what runs as asked, nothing is left to be done: each child is what the plan would make of it.
fn planned(bed: &Bed) {
    let settled = bed.ends(0, &["plan", "orders"]);
    assert!(settled.contains("nothing to do"), "{settled}");
    let file = std::env::temp_dir().join(format!("keelson-commands-{}.json", std::process::id()));
    let write = |spec: Value| {
        let object = json!({"apiVersion": "keelson.dev/v1", "kind": "Database", "metadata": {"name": "orders"}, "spec": spec});
        std::fs::write(&file, object.to_string()).unwrap();
    };
    let path = file.to_str().unwrap();
    write(json!({"replicas": 2, "storage": "1Gi"}));
    bed.ends(0, &["plan", "-f", path]);
    write(json!({"replicas": 2, "storage": "1Gi", "parameters": {"work_mem": "8MB"}}));
    let reload = bed.ends(2, &["plan", "-f", path]);
    assert!(reload.contains("settings.parameters.work_mem: 8MB"), "{reload}");
    write(json!({"replicas": 2, "storage": "1Gi", "resources": {"memory": "600Mi"}}));
    let restart = bed.ends(3, &["plan", "-f", path]);
    assert!(restart.contains("hands over to") && restart.contains("512Mi → 600Mi"), "{restart}");
    write(json!({"replicas": 2, "storage": "500Mi"}));
    println!("{}", bed.call(&["plan", "-f", path]).out);
    std::fs::remove_file(file).unwrap();
}

fn asked_and_logged(bed: &Bed) {
    let answer =
        bed.ends(0, &["psql", "orders", "--", "-XAtc", "select pg_is_in_recovery(), current_database()"]);
    assert_eq!(answer.trim(), "f|app");
    let refused = bed.call(&["psql", "orders", "--", "-XAtc", "select 1/0"]);
    assert!(refused.code != 0 && refused.err.contains("division by zero"), "{}", refused.err);
    let log = bed.ends(0, &["logs", "orders"]);
    for pod in ["orders-0 |", "orders-1 |"] {
        assert!(log.lines().any(|line| line.starts_with(pod)), "nothing of {pod}\n{log}");
    }
    let one = bed.ends(0, &["logs", "orders", "--instance", "orders-1", "--tail", "3"]);
    assert!(one.lines().count() <= 3 && one.lines().all(|line| line.starts_with("orders-1 |")), "{one}");
}

async fn restarted(bed: &Bed, leader: &str) {
    let before = [bed.uid("orders-0").await, bed.uid("orders-1").await];
    let said = bed.ends(0, &["restart", "orders", "--timeout", "300"]);
    println!("{said}");
    assert!(said.contains("orders-0 and orders-1 restarted in"), "{said}");
    let after = [bed.uid("orders-0").await, bed.uid("orders-1").await];
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    let database = bed.ready(2).await;
    assert_ne!(primary(&database), leader, "it handed over before it ended");
    let causes =
        database.status.as_ref().unwrap().leaderships.iter().take(1).filter_map(|one| one.why.clone());
    assert_eq!(causes.map(|why| why.to_string()).collect::<Vec<_>>(), ["HandedOver"]);
    // One alone; the other is left as it is.
    let other = primary(&database);
    let said = bed.ends(0, &["restart", "orders", "--instance", leader, "--timeout", "300"]);
    assert!(said.contains(&format!("{leader} restarted in")), "{said}");
    let index = |pod: &str| usize::from(pod.ends_with('1'));
    assert_eq!(bed.uid(&other).await, after[index(&other)]);
    assert_ne!(bed.uid(leader).await, after[index(leader)]);
    bed.ready(2).await;
    assert!(bed.ends(0, &["plan", "orders"]).contains("nothing to do"));
}

/// It has what somebody needs, and no password.
fn reported(bed: &Bed) {
    let file = std::env::temp_dir().join(format!("keelson-commands-{}.tar.gz", std::process::id()));
    let said = bed.ends(0, &["report", "orders", "--file", file.to_str().unwrap()]);
    for name in [
        "doctor.txt",
        "status/orders.txt",
        "objects/pods.yaml",
        "logs/orders-0.log",
        "operator/deployments.yaml",
    ] {
        assert!(said.contains(name), "{name}:\n{said}");
    }
    let unpacked = Command::new("tar").args(["-xzOf", file.to_str().unwrap()]).output().unwrap();
    assert!(unpacked.status.success());
    let text = String::from_utf8_lossy(&unpacked.stdout);
    for secret in ["orders-app", "orders-superuser", "orders-replication"] {
        let encoded = bed.kubectl(&["get", "secret", secret, "-o", "jsonpath={.data.password}"]);
        let decode = ["-c", "echo \"$0\" | base64 -d", encoded.trim()];
        let password = Command::new("sh").args(decode).output().unwrap().stdout;
        let password = String::from_utf8(password).unwrap();
        assert!(
            password.len() > 8 && !text.contains(&password) && !text.contains(encoded.trim()),
            "{secret}"
        );
    }
    std::fs::remove_file(file).unwrap();
}
