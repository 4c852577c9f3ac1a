//! A real Prometheus on loopback, with two hours of every metric that there is.

use std::fmt::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testbed::{Look, until_blocking};

use crate::known::{Metric, metrics, project};

/// How long the past is, and how often it was collected.
const PAST: u64 = 2 * 3600;
const OFTEN: usize = 60;

pub struct Prometheus {
    promtool: PathBuf,
    folder: PathBuf,
    url: String,
    child: Child,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Prometheus {
    pub fn start() -> Prometheus {
        let programs = testbed::prometheus().unwrap();
        let folder = std::env::temp_dir().join(format!("keelson-insight-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (page, data, config) = (folder.join("page"), folder.join("data"), folder.join("prometheus.yaml"));
        std::fs::write(&page, history()).unwrap();
        let rules = project("deploy/monitoring/alerts.yaml").canonicalize().unwrap();
        std::fs::write(&config, format!("rule_files: [{:?}]\n", rules)).unwrap();
        let promtool = programs.join("promtool");
        let mut import = Command::new(&promtool);
        import.args(["tsdb", "create-blocks-from", "openmetrics"]).args([&page, &data]);
        let imported = import.output().unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = serve(&programs.join("prometheus"), &folder, &config, &data, port);
        let mut server = Prometheus { promtool, folder, url: format!("http://127.0.0.1:{port}"), child };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let log = self.folder.join("log");
        until_blocking("Prometheus to answer", Duration::from_secs(60), || {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(
                ended,
                None,
                "Prometheus has ended: {}",
                std::fs::read_to_string(&log).unwrap_or_default()
            );
            match self.query("vector(1)") {
                Ok(_) => Look::There(()),
                Err(said) => Look::NotYet(said),
            }
        })
        .unwrap();
    }

    /// What comes of a query now, or what is wrong with it.
    pub fn query(&self, query: &str) -> Result<String, String> {
        let output =
            Command::new(&self.promtool).args(["query", "instant", &self.url, query]).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn serve(program: &Path, folder: &Path, config: &Path, data: &Path, port: u16) -> Child {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command.spawn().unwrap()
}

/// Every metric as it would have been collected from an operator and from two instances of a database.
fn history() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut text = String::new();
    for metric in metrics() {
        for target in targets(metric.name) {
            for series in series(&metric, target) {
                for (step, at) in (now - PAST..=now).step_by(OFTEN).enumerate() {
                    let value = if is_a_yes(metric.name) { 1 } else { 1 + step };
                    writeln!(text, "{series} {value} {at}").unwrap();
                }
            }
        }
    }
    text + "# EOF\n"
}

/// Whether it is 0 or 1.
fn is_a_yes(name: &str) -> bool {
    ["keelson_leader", "keelson_agent_leader", "keelson_agent_writable", "keelson_postgres_up"]
        .contains(&name)
}

/// The labels of whoever shows a metric.
fn targets(name: &str) -> Vec<&'static str> {
    let instance = "namespace=\"shop\",keelson_database=\"orders\",pod=\"orders-0\"";
    let other = "namespace=\"shop\",keelson_database=\"orders\",pod=\"orders-1\"";
    let operator = "namespace=\"keelson-system\",pod=\"keelson-a\"";
    match name {
        // It says itself of which namespace it speaks.
        "keelson_databases_total" | "keelson_apps_total" => vec!["pod=\"keelson-a\""],
        _ if name.starts_with("process_") => vec![instance, other, operator],
        _ if name.starts_with("keelson_agent_") || name.starts_with("keelson_postgres_") => {
            vec![instance, other]
        }
        _ => vec![operator],
    }
}

fn series(metric: &Metric, target: &str) -> Vec<String> {
    let value = |label: &&str| match *label {
        "namespace" => "shop",
        "phase" => "Running",
        "state" => "active",
        "stage" => "replay",
        "standby" => "orders-1",
        "database" => "app",
        "source" => "memory",
        "result" => "success",
        "code" => "503",
        _ => "other",
    };
    let own: String = metric.labels.iter().map(|label| format!(",{label}=\"{}\"", value(label))).collect();
    let name = metric.name;
    match metric.histogram {
        false => vec![format!("{name}{{{target}{own}}}")],
        true => vec![
            format!("{name}_bucket{{{target}{own},le=\"0.1\"}}"),
            format!("{name}_bucket{{{target}{own},le=\"+Inf\"}}"),
            format!("{name}_sum{{{target}{own}}}"),
            format!("{name}_count{{{target}{own}}}"),
        ],
    }
}
