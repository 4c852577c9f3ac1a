//! Certificates for webhooks: made here, shared by all replicas, renewed without a failed request.
//!
//! ```text
//! let keeper = Keeper::new(client, "shop-system", "shop-webhook")
//!     .names(["shop-webhook.shop-system.svc"])
//!     .target(Target::Definition("orders.shop.example".into()))
//!     .target(Target::Validating("shop".into()));
//! let certificates = keeper.certificates();
//! let tls = Some(certificates.tls()?);
//! tokio::join!(keeper.run(stopped()), serve(listener, tls, webhooks.handler(), stopped()));
//! ```
//!
//! An API server calls a webhook only if the webhook's certificate was signed by an authority in the
//! `caBundle` of whatever names the webhook. So there is a certificate and its authority, kept in one
//! Secret, and the authority is written into all objects that name the webhook: the *targets*.
//!
//! # An authority signs once
//! Each serving certificate has an authority of its own, and the authority's key is forgotten as soon
//! as it has signed. So there is no key in the cluster that could sign another certificate, and one
//! thing to renew instead of two that depend on each other. The price is that targets are written at
//! each renewal, every two months, and not once a year.
//!
//! # The order of a renewal
//! 1. **Announce**: the next pair is stored; its authority goes into the bundle beside the others.
//! 2. The bundle is written to all targets, and seen there without a change for [`Settings::settle`]:
//!    an API server learns of a change to a target a moment after it has accepted it.
//! 3. **Switch**: the next pair becomes the serving one. Replicas load it when they come to it.
//!
//! An authority stays in the bundle until it has expired, whatever happens, so a replica that was cut
//! off and still shows the certificate before last is trusted as long as that is valid. Nothing depends
//! on how soon anybody reloads.
//!
//! # Several replicas
//! Any replica may take any step, leading or not: a webhook that is up must not wait for a leader.
//! The Secret is written by compare-and-swap, so of two that act at once one is refused and reads
//! anew. Targets too, and there the order of reading matters: a replica that was paused after it read
//! the Secret would write an old bundle over a newer one. So **targets are read before the
//! Secret**: whoever stored a newer state writes the targets later than that, which makes the paused
//! replica's write fail.
//!
//! # What goes wrong
//! - A Secret that was deleted, emptied or edited is replaced, and said so loudly. While a
//!   replica still has what was there, the certificate that is served stays and a renewal
//!   begins, so deleting the Secret is how a person asks for one. If nobody has it, there is a new
//!   pair at once, and calls fail until it is injected.
//! - A target that somebody changed is repaired: at once where it can be watched, and at the
//!   next [`Settings::look`] in any case.
//! - If the bundle can't be written, the certificate is not switched before it has expired, and
//!   [`Certificates::valid`] says why.
//! - Two releases that want different names in the certificate do not fight: what one adds, the other
//!   keeps until the next renewal.
//! - To distrust a key that has leaked, stop all replicas, delete the Secret and start them.
//!
//! Certificates speak in times of day, so this is the one part of the kit that depends on clocks. They
//! are valid from an hour ago ([`Settings::backdate`]), which is what clocks may differ by.
//!
//! # Rights
//! | API group | resource | verbs | names |
//! |---|---|---|---|
//! | core, in its namespace | `secrets` | `create` | can't be restricted |
//! | core, in its namespace | `secrets` | `get`, `list`, `watch`, `update` | the Secret |
//! | `apiextensions.k8s.io` | `customresourcedefinitions` | `get`, `list`, `watch`, `patch` | targets |
//! | `admissionregistration.k8s.io` | `validatingwebhookconfigurations` | the same | targets |
//! | `admissionregistration.k8s.io` | `mutatingwebhookconfigurations` | the same | targets |
//!
//! `list` and `watch` are asked for with a field selector on the name, which rules with
//! `resourceNames` allow, and for metadata only. Without them all works, but slower.

mod keeper;
mod loaded;
mod pair;
pub mod plan;
mod stored;
mod target;

pub use keeper::Keeper;
pub use loaded::Certificates;
pub use pair::{PrivateKey, Signed};
pub use plan::Settings;
pub use target::Target;
