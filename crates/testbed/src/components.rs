//! The command lines and settings of everything that runs in the cluster. Nothing here runs
//! anything: it can be read top to bottom as the description of a Kubernetes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::debian::SANDBOX_IMAGE;
use crate::error::{During, Result};
use crate::gobuild::Programs;
use crate::image::full_name;
use crate::init::{Component, Spec};
use crate::layout::Layout;
use crate::machine::{HUB, machine_cgroup};
use crate::network::{self, API, API_PORT, DNS, DNS_SERVICE, Node, PODS, S3, S3_PORT, SERVICES};
use crate::pki::Pki;

/// The socket of a machine's container runtime, inside the machine.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// The bucket that is there from the start.
pub(crate) const S3_BUCKET: &str = "backups";
/// Its region, which an S3 server of one machine must call something.
pub(crate) const S3_REGION: &str = "us-east-1";

fn component(name: &str, argv: Vec<String>) -> Component {
    Component { name: name.to_owned(), argv, env: Vec::new(), after: None }
}

fn argv(program: PathBuf, flags: &[String]) -> Vec<String> {
    std::iter::once(program.display().to_string()).chain(flags.iter().cloned()).collect()
}

/// How etcd and the API server are run: the same with nodes and without.
pub(crate) struct ControlPlane<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) pki: &'a Pki,
    pub(crate) etcd_data: PathBuf,
    pub(crate) etcd_port: u16,
    pub(crate) etcd_peer_port: u16,
    /// Where the API server listens, and what it tells others.
    pub(crate) address: std::net::Ipv4Addr,
    pub(crate) port: u16,
}

impl ControlPlane<'_> {
    fn kubernetes(&self, component_name: &str, flags: &[String]) -> Component {
        let mut words = argv(self.programs.find("kubernetes"), &[component_name.to_owned()]);
        words.extend_from_slice(flags);
        component(component_name, words)
    }

    pub(crate) fn etcd(&self) -> Component {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", self.etcd_peer_port);
        self.kubernetes(
            "etcd",
            &[
                format!("--data-dir={}", self.etcd_data.display()),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
                // The cluster is thrown away with its data.
                "--unsafe-no-fsync=true".into(),
                "--log-level=warn".into(),
            ],
        )
    }

    pub(crate) fn api_server(&self) -> Component {
        let pki = self.pki;
        self.kubernetes(
            "kube-apiserver",
            &[
                format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
                format!("--bind-address={}", self.address),
                format!("--advertise-address={}", self.address),
                format!("--secure-port={}", self.port),
                format!("--service-cluster-ip-range={SERVICES}"),
                format!("--tls-cert-file={}", pki.file("apiserver.crt")),
                format!("--tls-private-key-file={}", pki.file("apiserver.key")),
                format!("--client-ca-file={}", pki.file("ca.crt")),
                format!("--kubelet-certificate-authority={}", pki.file("ca.crt")),
                format!("--kubelet-client-certificate={}", pki.file("apiserver-kubelet.crt")),
                format!("--kubelet-client-key={}", pki.file("apiserver-kubelet.key")),
                "--kubelet-preferred-address-types=InternalIP".into(),
                format!("--service-account-key-file={}", pki.file("tokens.pub")),
                format!("--service-account-signing-key-file={}", pki.file("tokens.key")),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--requestheader-client-ca-file={}", pki.file("ca.crt")),
                "--requestheader-allowed-names=front-proxy".into(),
                "--requestheader-username-headers=X-Remote-User".into(),
                "--requestheader-group-headers=X-Remote-Group".into(),
                "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
                format!("--proxy-client-cert-file={}", pki.file("front-proxy.crt")),
                format!("--proxy-client-key-file={}", pki.file("front-proxy.key")),
                // Webhooks and extensions are called at their pods' addresses: no kube-proxy runs here.
                "--enable-aggregator-routing=true".into(),
                "--authorization-mode=Node,RBAC".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
                "--allow-privileged=true".into(),
                "--profiling=false".into(),
            ],
        )
    }

    pub(crate) fn controller_manager(&self, kubeconfig: &Path) -> Component {
        let pki = self.pki;
        self.kubernetes(
            "kube-controller-manager",
            &[
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--root-ca-file={}", pki.file("ca.crt")),
                format!("--service-account-private-key-file={}", pki.file("tokens.key")),
                "--use-service-account-credentials=true".into(),
                // There is only one, so it needs to ask nobody, and comes back at once after a restart.
                "--leader-elect=false".into(),
                "--profiling=false".into(),
            ],
        )
    }

    fn scheduler(&self, kubeconfig: &Path) -> Component {
        let flags = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".into(),
            "--profiling=false".into(),
        ];
        self.kubernetes("kube-scheduler", &flags)
    }
}

/// Everything that runs on the hub: the control plane, and what a cluster takes for granted (names,
/// an object store) and must not lose with a node.
pub(crate) fn hub(
    layout: &Layout,
    programs: &Programs,
    pki: &Pki,
    s3_keys: &[(String, String); 2],
) -> Result<Spec> {
    let folder = layout.machine(HUB);
    let kubeconfig = folder.join("kubeconfig");
    fs::create_dir_all(&folder).during("creating", &folder)?;
    pki.write_admin(&format!("https://{API}:{API_PORT}"), &kubeconfig)?;

    let plane = ControlPlane {
        programs,
        pki,
        etcd_data: folder.join("etcd"),
        etcd_port: 2379,
        etcd_peer_port: 2380,
        address: API,
        port: API_PORT,
    };
    let corefile = folder.join("Corefile");
    let zones = format!(
        ".:53 {{\n  bind {DNS}\n  errors\n  ready {DNS}:8181\n  kubernetes cluster.local in-addr.arpa {{\n    \
         kubeconfig {} testbed\n    pods insecure\n    ttl 5\n  }}\n  cache 5\n}}\n",
        kubeconfig.display()
    );
    fs::write(&corefile, zones).during("writing", &corefile)?;
    let coredns = ["-conf".to_owned(), corefile.display().to_string()];

    let objects = folder.join("objects");
    let bucket = objects.join(S3_BUCKET);
    fs::create_dir_all(&bucket).during("creating", &bucket)?;
    let s3_flags = [
        "--port".to_owned(),
        format!("{S3}:{S3_PORT}"),
        "--region".to_owned(),
        S3_REGION.to_owned(),
        "posix".to_owned(),
        objects.display().to_string(),
    ];
    let mut s3 = component("s3", argv(programs.find("versitygw"), &s3_flags));
    s3.env = s3_keys.to_vec();

    Ok(Spec {
        name: HUB.to_owned(),
        logs: layout.logs(HUB),
        path: programs.path(),
        binds: Vec::new(),
        components: vec![
            plane.etcd(),
            plane.api_server(),
            plane.controller_manager(&kubeconfig),
            plane.scheduler(&kubeconfig),
            component("coredns", argv(programs.find("coredns"), &coredns)),
            s3,
        ],
        folder,
    })
}

/// Everything that runs on a node.
pub(crate) fn node(layout: &Layout, programs: &Programs, pki: &Pki, node: Node) -> Result<Spec> {
    let name = node.name();
    let folder = layout.machine(&name);
    let settings = folder.join("settings");
    let server = format!("https://{API}:{API_PORT}");
    for needed in [&settings, &folder.join("lib/kubelet"), &folder.join("log")] {
        fs::create_dir_all(needed).during("creating", needed)?;
    }
    pretend_cores(&folder)?;
    let subject = format!("system:node:{name}");
    let key = format!("kubelet-{name}");
    pki.sign(&key, &subject, &["system:nodes"], &[node.address().into()], &[name.as_str()])?;
    pki.write_kubeconfig(&key, &server, &settings.join("kubelet.kubeconfig"))?;
    let proxy_key = format!("kube-proxy-{name}");
    pki.sign(&proxy_key, "system:kube-proxy", &[], &[], &[])?;
    pki.write_kubeconfig(&proxy_key, &server, &settings.join("kube-proxy.kubeconfig"))?;
    pki.write_kubeconfig("admin", &server, &settings.join("volumes.kubeconfig"))?;

    write(&settings, "containerd.toml", &containerd_settings(&settings))?;
    let registries = settings.join("registries/_default");
    fs::create_dir_all(&registries).during("creating", &registries)?;
    write(&registries, "hosts.toml", NO_REGISTRY)?;
    write(&settings, "10-pods.conflist", &pod_network(node))?;
    write(&settings, "kubelet.json", &kubelet_settings(layout, pki, node, &settings))?;
    // Pods that ask for the machine's own name service get the cluster's, too: there is no other.
    write(&settings, "resolv.conf", &format!("nameserver {DNS}\n"))?;

    let file = |name: &str| settings.join(name).display().to_string();
    let containerd = argv(programs.find("containerd"), &["--config".into(), file("containerd.toml")]);
    let kubelet = [
        "kubelet".to_owned(),
        format!("--config={}", file("kubelet.json")),
        format!("--kubeconfig={}", file("kubelet.kubeconfig")),
        format!("--hostname-override={name}"),
        format!("--node-ip={}", node.address()),
        format!("--node-labels=topology.kubernetes.io/zone=zone-{name}"),
    ];
    let proxy = [
        "kube-proxy".to_owned(),
        format!("--kubeconfig={}", file("kube-proxy.kubeconfig")),
        format!("--hostname-override={name}"),
        "--proxy-mode=nftables".into(),
        format!("--cluster-cidr={PODS}"),
        // A namespace may not write these; zero leaves them alone.
        "--conntrack-max-per-core=0".into(),
        "--conntrack-min=0".into(),
        "--conntrack-tcp-timeout-established=0s".into(),
        "--conntrack-tcp-timeout-close-wait=0s".into(),
        "--oom-score-adj=0".into(),
    ];
    let volumes = [
        "volumes".to_owned(),
        "--node".into(),
        name.clone(),
        "--kubeconfig".into(),
        file("volumes.kubeconfig"),
    ];
    let mut kubelet = component("kubelet", argv(programs.find("kubernetes"), &kubelet));
    kubelet.after = Some(PathBuf::from(CONTAINERD_SOCKET));
    Ok(Spec {
        name,
        logs: layout.logs(&node.name()),
        path: programs.path(),
        // With its own /var/lib and /var/log a node uses the paths that every other node uses.
        binds: vec![
            (folder.join("lib"), "/var/lib".into()),
            (folder.join("log"), "/var/log".into()),
            (folder.join("cores"), "/sys/devices/system/cpu".into()),
            (folder.join("no-numa"), "/sys/devices/system/node".into()),
        ],
        components: vec![
            component("containerd", containerd),
            kubelet,
            component("kube-proxy", argv(programs.find("kubernetes"), &proxy)),
            component("volumes", argv(layout.program(), &volumes)),
        ],
        folder,
    })
}

/// How many cores a node says it has, at least. All nodes share the machine's, by weight; without
/// this, three databases of an ordinary size would not fit on them by their requests.
const CORES: usize = 8;

/// What the kubelet counts in the place of the kernel's own list. It counts the folders, and asks
/// for processes to be run only on those that say where they sit: the real ones.
fn pretend_cores(folder: &Path) -> Result<()> {
    let empty = folder.join("no-numa");
    fs::create_dir_all(&empty).during("creating", &empty)?;
    let real = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for core in 0..CORES.max(real) {
        let topology = folder.join(format!("cores/cpu{core}/topology"));
        fs::create_dir_all(&topology).during("creating", &topology)?;
        if core < real {
            write(&topology, "core_id", &core.to_string())?;
            write(&topology, "physical_package_id", "0")?;
        }
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    crate::pki::write_secret(&folder.join(name), text)
}

/// With more of them in a folder. Also used, without a network, to fill the image store.
pub(crate) fn containerd_settings(folder: &Path) -> String {
    let sandbox = full_name(SANDBOX_IMAGE);
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{sandbox}"

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{0}/registries"

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE no process may lower its score.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{0}"
"#,
        folder.display()
    )
}

/// Nothing can be pulled, and that is known at once: without this, a name is looked up in vain for a minute.
const NO_REGISTRY: &str = "server = \"http://127.0.0.1:1\"\n";

/// Pods hang on the node one by one, not on a bridge: so all their packets are routed, and a
/// Service works also between two pods of one node.
fn pod_network(node: Node) -> String {
    let address = json!({ "type": "host-local", "subnet": node.pods(), "routes": [{ "dst": "0.0.0.0/0" }] });
    let plugins = json!([{ "type": "ptp", "ipMasq": false, "ipam": address }]);
    json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": plugins }).to_string()
}

fn kubelet_settings(layout: &Layout, pki: &Pki, node: Node, settings: &Path) -> String {
    let key = format!("kubelet-{node}");
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": { "x509": { "clientCAFile": pki.file("ca.crt") }, "anonymous": { "enabled": false } },
        "tlsCertFile": pki.file(&format!("{key}.crt")),
        "tlsPrivateKeyFile": pki.file(&format!("{key}.key")),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE],
        "resolvConf": settings.join("resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": machine_cgroup(layout, &node.name()).absolute(),
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": false,
        "localStorageCapacityIsolation": false,
        // The disk is the machine's, shared with everything else: that it fills up is not this node's affair,
        // and no image that is gone can be pulled again.
        "evictionHard": { "memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%" },
        "imageGCHighThresholdPercent": 100,
        "maxParallelImagePulls": 4,
        "serializeImagePulls": false,
        "address": network::Node::address(node),
    })
    .to_string()
}
