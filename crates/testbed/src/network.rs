//! Addresses, links and broken links.
//!
//! Each machine of the cluster is a network namespace. The hub, where the control plane runs, is
//! also the router: every node has one leg to it (`n1`, `n2`, … on the hub's side), so that one
//! packet filter on the hub can cut or thin out any path. No link leads out of the hub: what is
//! not an address of the cluster is unreachable, and nothing of the cluster can be reached from
//! the machine's own network.

use std::fmt::Write;
use std::net::Ipv4Addr;

use crate::error::Result;
use crate::machine::Machine;
use crate::shell::run;

/// Pods of all nodes.
pub(crate) const PODS: &str = "10.244.0.0/16";
/// Services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The API server's own Service.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The DNS Service, which every pod is told.
pub(crate) const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The API server.
pub(crate) const API: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 1);
/// CoreDNS. An address of its own, so that the API server can be cut off alone.
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 53);
/// The S3 server.
pub(crate) const S3: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 80);
/// The API server's port.
pub(crate) const API_PORT: u16 = 6443;
/// The S3 server's port.
pub(crate) const S3_PORT: u16 = 9000;

/// A node's number, from 1 on: its name, its addresses and its leg all follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Node(u8);

impl Node {
    /// Node number `number`; the addresses have room for 200.
    pub fn new(number: u8) -> Option<Self> {
        (1..=200).contains(&number).then_some(Node(number))
    }

    /// All nodes of a cluster of `count`.
    pub(crate) fn all(count: u8) -> impl Iterator<Item = Node> {
        (1..=count).filter_map(Node::new)
    }

    /// `node-1`, as Kubernetes knows it.
    pub fn name(self) -> String {
        format!("node-{}", self.0)
    }

    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 90, 1, self.0)
    }

    pub(crate) fn pods(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    fn leg(self) -> String {
        format!("n{}", self.0)
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl std::str::FromStr for Node {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let number = name.strip_prefix("node-").and_then(|number| number.parse().ok()).and_then(Node::new);
        number.ok_or_else(|| format!("{name:?} is not a node: they are called node-1, node-2, …"))
    }
}

impl TryFrom<String> for Node {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

impl From<Node> for String {
    fn from(node: Node) -> String {
        node.name()
    }
}

/// Gives the hub its addresses and makes it a router.
pub(crate) fn set_up_hub(hub: &Machine) -> Result<()> {
    let mut script = String::from("ip link set lo up\necho 1 > /proc/sys/net/ipv4/ip_forward\n");
    for address in [API, DNS, S3] {
        let _ = writeln!(script, "ip address add {address}/32 dev lo");
    }
    hub.shell(&script)
}

/// Lays the link between the hub and a node.
pub(crate) fn connect(hub: &Machine, machine: &Machine, node: Node) -> Result<()> {
    let (leg, hub_pid, node_pid) = (node.leg(), hub.pid().to_string(), machine.pid().to_string());
    hub.shell(&format!("ip link delete {leg} 2>/dev/null || true\n"))?;
    let words =
        ["ip", "link", "add", &leg, "netns", &hub_pid, "type", "veth", "peer", "name", "eth0", "netns"];
    run(&[&words[..], &[node_pid.as_str()]].concat())?;
    let address = node.address();
    hub.shell(&routes_to(node))?;
    machine.shell(&format!(
        "ip link set lo up\n\
         ip address add {address}/32 dev eth0\n\
         ip link set eth0 up\n\
         ip route add {API}/32 dev eth0 scope link src {address}\n\
         ip route add default via {API} dev eth0 src {address}\n\
         echo 1 > /proc/sys/net/ipv4/ip_forward\n"
    ))
}

fn routes_to(node: Node) -> String {
    let (leg, address, pods) = (node.leg(), node.address(), node.pods());
    format!(
        "ip link set {leg} up\n\
         ip route add {address}/32 dev {leg} src {API}\n\
         ip route add {pods} via {address} dev {leg} onlink\n"
    )
}

/// Puts a link to nowhere in the place of a node's that has died. Without one the hub would tell
/// everybody at once that the node can't be reached; a machine without power tells nobody anything.
pub(crate) fn leave_silence(hub: &Machine, node: Node) -> Result<()> {
    let (leg, address) = (node.leg(), node.address());
    hub.shell(&format!(
        "ip link delete {leg} 2>/dev/null || true\n\
         ip link add {leg} type veth peer name {leg}-nowhere\n\
         ip link set {leg}-nowhere up\n\
         {}\
         ip neighbour replace {address} lladdr 02:00:00:00:00:01 dev {leg} nud permanent\n",
        routes_to(node)
    ))
}

/// One thing that is wrong with the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Nothing from one node reaches the other.
    OneWay { from: Node, to: Node },
    /// Nothing reaches the node, nothing leaves it.
    Isolated(Node),
    /// The node and the API server can't reach each other; all else works.
    FromApi(Node),
    /// So many of a hundred packets to and from the node are lost.
    Loss { node: Node, percent: u8 },
}

/// The whole packet filter for everything that is wrong at the moment. It replaces what was there
/// in one step.
pub(crate) fn ruleset(breaks: &[Break]) -> String {
    let (mut forward, mut input, mut output) = (String::new(), String::new(), String::new());
    for broken in breaks {
        match *broken {
            Break::OneWay { from, to } => {
                let _ = writeln!(forward, "    iifname {} oifname {} drop", from.leg(), to.leg());
            }
            Break::Isolated(node) => {
                let leg = node.leg();
                let _ = writeln!(forward, "    iifname {leg} drop\n    oifname {leg} drop");
                let _ = writeln!(input, "    iifname {leg} drop");
                let _ = writeln!(output, "    oifname {leg} drop");
            }
            Break::FromApi(node) => {
                let leg = node.leg();
                let _ = writeln!(input, "    iifname {leg} ip daddr {API} drop");
                let _ = writeln!(output, "    oifname {leg} ip saddr {API} drop");
            }
            Break::Loss { node, percent } => {
                let (leg, chance) = (node.leg(), format!("numgen random mod 100 < {percent} drop"));
                let _ = writeln!(forward, "    iifname {leg} {chance}\n    oifname {leg} {chance}");
                let _ = writeln!(input, "    iifname {leg} {chance}");
                let _ = writeln!(output, "    oifname {leg} {chance}");
            }
        }
    }
    let chain = |name: &str, rules: &str| {
        format!(
            "  chain {name} {{\n    type filter hook {name} priority filter; policy accept;\n{rules}  }}\n"
        )
    };
    format!(
        "table inet faults\ndelete table inet faults\ntable inet faults {{\n{}{}{}}}\n",
        chain("forward", &forward),
        chain("input", &input),
        chain("output", &output)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> Node {
        Node::new(number).unwrap()
    }

    #[test]
    fn a_one_way_cut_drops_one_way_only() {
        let rules = ruleset(&[Break::OneWay { from: node(1), to: node(2) }]);
        assert!(rules.contains("iifname n1 oifname n2 drop"));
        assert!(!rules.contains("iifname n2"));
    }

    #[test]
    fn a_node_cut_off_from_the_api_server_keeps_its_name_service() {
        let rules = ruleset(&[Break::FromApi(node(3))]);
        assert!(rules.contains("iifname n3 ip daddr 10.90.0.1 drop"));
        assert!(!rules.contains("10.90.0.53"));
    }

    #[test]
    fn without_faults_everything_passes() {
        assert!(!ruleset(&[]).contains("drop"));
    }

    #[test]
    fn node_names_say_what_they_should_look_like() {
        assert_eq!("node-12".parse::<Node>().unwrap(), node(12));
        for wrong in ["node-0", "node-201", "node", "n1", "node-x"] {
            assert!(wrong.parse::<Node>().unwrap_err().contains("node-1, node-2"), "{wrong}");
        }
    }
}
