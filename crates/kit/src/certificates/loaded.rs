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

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::version::{TLS12, TLS13};
    use tokio_rustls::rustls::{ClientConfig, SupportedProtocolVersion};

    use super::*;
    use crate::certificates::Settings;
    use crate::serve::{handler, serve, text};

    type Connected = std::io::Result<TlsStream<TcpStream>>;

    /// Connects as somebody who trusts nothing but the authority of a pair.
    async fn connect(
        port: u16,
        pair: &Pair<Signed>,
        version: &'static SupportedProtocolVersion,
    ) -> Connected {
        let config = ClientConfig::builder_with_provider(Arc::new(pair::provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(pair::roots(&pair.authority).unwrap())
            .with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn ask(stream: &mut TlsStream<TcpStream>) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 1024];
        let length = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    #[tokio::test]
    async fn a_new_certificate_is_shown_to_those_who_connect_and_disturbs_nobody_else() {
        let make = || pair::make(&["127.0.0.1".to_owned()], Timestamp::now(), &Settings::default()).unwrap();
        let certificates = Certificates::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = handler(|_| async { text(StatusCode::OK, "well") });
        tokio::spawn(serve(listener, Some(certificates.tls().unwrap()), answer, std::future::pending()));
        let mut before = make();
        connect(port, &before, &TLS13).await.expect_err("nothing is loaded yet");
        assert!(certificates.load(&before).unwrap() && !certificates.load(&before).unwrap());
        for version in [&TLS12, &TLS13] {
            let mut open = connect(port, &before, version).await.unwrap();
            assert!(ask(&mut open).await.ends_with("well"));
            let after = make();
            assert!(certificates.load(&after).unwrap());
            assert!(ask(&mut open).await.ends_with("well"), "what is open stays open");
            connect(port, &before, version).await.expect_err("the old one is no longer shown");
            assert!(ask(&mut connect(port, &after, version).await.unwrap()).await.ends_with("well"));
            before = after;
        }
    }

    #[test]
    fn validity_is_that_of_now_and_of_trust() {
        let certificates = Certificates::default();
        assert!(certificates.valid().unwrap_err().contains("no certificate"));
        let names = ["a.example".to_owned()];
        let long_ago = Timestamp::from_second(1_000_000_000).unwrap();
        certificates.load(&pair::make(&names, long_ago, &Settings::default()).unwrap()).unwrap();
        certificates.trusted(Ok(()));
        assert!(certificates.valid().unwrap_err().contains("not valid now"));
        certificates.load(&pair::make(&names, Timestamp::now(), &Settings::default()).unwrap()).unwrap();
        certificates.valid().unwrap();
        certificates.trusted(Err("nobody trusts it".to_owned()));
        assert_eq!(certificates.valid().unwrap_err(), "nobody trusts it");
    }
}
