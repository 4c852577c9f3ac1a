//! The operator on a real API server. There are no controllers and no nodes: the tests play the
//! StatefulSet controller, the kubelets and the agents.

mod bystanders;
mod crashes;
mod life;
mod numbers;
mod players;
mod rights;
mod world;
