//! What TLS is served with at this moment, and whether it is any good.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::jiff::Timestamp;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use super::pair::{self, Fault, Signed};
use super::plan::Pair;

/// The certificates that a [`Keeper`](super::Keeper) keeps, for those who serve with them and those
/// who want to know how they are. All clones are the same.
#[derive(Clone, Default)]
pub struct Certificates {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    loaded: RwLock<Option<Loaded>>,
    /// Why some target does not trust what is served, as of the last look; `None` before the first.
    trusted: RwLock<Option<Result<(), String>>>,
}

struct Loaded {
    pair: Pair<Signed>,
    served: Arc<CertifiedKey>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("valid", &self.valid()).finish()
    }
}

impl Certificates {
    /// For a server that shows whichever certificate is current when a client connects.
    /// Connections that are open stay open. TLS 1.2 and 1.3.
    pub fn tls(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(pair::provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Whether calls get through: the certificate that is served with is valid now, and at the last
    /// look all targets carried its authority. If not, why not. For `/readyz`.
    ///
    /// A target that does not exist calls nobody, and is no reason to turn away the calls of others; nor
    /// is one that has yet to learn of the *next* authority. Both are logged.
    pub fn valid(&self) -> Result<(), String> {
        match &*self.shared.loaded.read().unwrap_or_else(PoisonError::into_inner) {
            None => return Err("no certificate has been loaded yet".to_owned()),
            Some(loaded) => pair::check(&loaded.pair, Timestamp::now())
                .map_err(|fault| format!("the certificate is not valid now: {fault}"))?,
        }
        let trusted = self.shared.trusted.read().unwrap_or_else(PoisonError::into_inner).clone();
        trusted.unwrap_or_else(|| Err("nobody has looked yet whether it is trusted, or could not".to_owned()))
    }

    /// When the certificate that is served with ends, for metrics.
    pub fn until(&self) -> Option<Timestamp> {
        let loaded = self.shared.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.as_ref().map(|loaded| loaded.pair.authority.until.0)
    }

    /// Serves with this from now on. Whether that is a change.
    pub(crate) fn load(&self, pair: &Pair<Signed>) -> Result<bool, Fault> {
        let mut loaded = self.shared.loaded.write().unwrap_or_else(PoisonError::into_inner);
        if loaded.as_ref().is_some_and(|loaded| loaded.pair == *pair) {
            return Ok(false);
        }
        *loaded = Some(Loaded { pair: pair.clone(), served: Arc::new(pair::certified(&pair.signed)?) });
        Ok(true)
    }

    /// Remembers how the last look at the targets came out.
    pub(crate) fn trusted(&self, trusted: Result<(), String>) {
        *self.shared.trusted.write().unwrap_or_else(PoisonError::into_inner) = Some(trusted);
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let loaded = self.shared.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.as_ref().map(|loaded| loaded.served.clone())
    }
}
