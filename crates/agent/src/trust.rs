//! Whom an agent believes: who has a certificate that Keelson's authority has signed for this very database. The
//! authority is one for all databases, so its signature alone says nothing of whose it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use keelson_api::instance::paths;
use thiserror::Error;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    self, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};

/// Why the certificates that are mounted can't be used.
#[derive(Debug, Error)]
pub enum TrustError {
    /// A file of the Secret.
    #[error("the Secret for tls has no usable {file}: {why}")]
    File {
        /// Which.
        file: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// What is in them does not fit together.
    #[error("the certificate in the Secret for tls can't be used: {0}")]
    Tls(String),
}

fn wrong(error: &dyn std::fmt::Display) -> TrustError {
    TrustError::Tls(error.to_string())
}

/// Where the Secret is mounted.
struct Files(PathBuf);

impl Files {
    fn mounted() -> Files {
        Files(Path::new(paths::TLS).to_owned())
    }

    fn certificates(&self, name: &'static str) -> Result<Vec<CertificateDer<'static>>, TrustError> {
        let file = |why: pem::Error| TrustError::File { file: name, why: why.to_string() };
        let found = CertificateDer::pem_file_iter(self.0.join(name)).map_err(file)?;
        found.collect::<Result<Vec<_>, _>>().map_err(file)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TrustError> {
        let file = |why: pem::Error| TrustError::File { file: "tls.key", why: why.to_string() };
        PrivateKeyDer::from_pem_file(self.0.join("tls.key")).map_err(file)
    }

    fn trusted(&self) -> Result<Arc<RootCertStore>, TrustError> {
        let mut trusted = RootCertStore::empty();
        for authority in self.certificates("ca.crt")? {
            trusted.add(authority).map_err(|error| wrong(&error))?;
        }
        Ok(Arc::new(trusted))
    }
}

/// For those who ask the instance with this name: they must have a certificate for that name too, as all instances of
/// one database have, and nobody else.
pub fn server(host: &str) -> Result<Arc<ServerConfig>, TrustError> {
    server_with(&Files::mounted(), host)
}

fn server_with(files: &Files, host: &str) -> Result<Arc<ServerConfig>, TrustError> {
    let provider = Arc::new(default_provider());
    let signed = WebPkiClientVerifier::builder_with_provider(files.trusted()?, provider.clone());
    let signed = signed.build().map_err(|error| wrong(&error))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(&error))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_client_cert_verifier(Arc::new(OfThisDatabase { signed, name }))
        .with_single_cert(files.certificates("tls.crt")?, files.key()?)
        .map_err(|error| wrong(&error))?;
    Ok(Arc::new(config))
}

/// For asking others: they must have a certificate for the name by which they are asked.
pub fn client() -> Result<Arc<ClientConfig>, TrustError> {
    client_with(&Files::mounted())
}

fn client_with(files: &Files) -> Result<Arc<ClientConfig>, TrustError> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(files.trusted()?)
        .with_client_auth_cert(files.certificates("tls.crt")?, files.key()?)
        .map_err(|error| wrong(&error))?;
    Ok(Arc::new(config))
}

/// A certificate that is signed, and for a name.
#[derive(Debug)]
struct OfThisDatabase {
    signed: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for OfThisDatabase {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.signed.verify_client_cert(certificate, intermediates, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    struct Authority {
        params: CertificateParams,
        key: KeyPair,
    }

    impl Authority {
        fn new() -> Authority {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
            Authority { params, key: KeyPair::generate().unwrap() }
        }

        /// What an instance of a database has mounted.
        fn files(&self, folder: &Path, host: &str) -> Files {
            let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().unwrap();
            let issuer = Issuer::from_params(&self.params, &self.key);
            let folder = folder.join(host.trim_start_matches("*."));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("tls.crt"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
            fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
            fs::write(folder.join("ca.crt"), self.params.self_signed(&self.key).unwrap().pem()).unwrap();
            Files(folder)
        }
    }

    /// Whether the one is answered by the other.
    async fn is_heard(asks: &Files, answers: &Files) -> bool {
        const HOST: &str = "orders-0.orders.shop.svc";
        let server = TlsAcceptor::from(server_with(answers, HOST).unwrap());
        let client = TlsConnector::from(client_with(asks).unwrap());
        let (here, there) = tokio::io::duplex(1 << 16);
        let served = tokio::spawn(async move {
            let mut stream = server.accept(there).await?;
            stream.write_all(b"yes").await?;
            stream.shutdown().await
        });
        let name = ServerName::try_from(HOST).unwrap();
        let heard = async {
            let mut said = String::new();
            client.connect(name, here).await?.read_to_string(&mut said).await.map(|_| said)
        };
        let (heard, served) = (heard.await, served.await.unwrap());
        heard.is_ok_and(|said| said == "yes") && served.is_ok()
    }

    #[tokio::test]
    async fn only_instances_of_the_same_database_are_answered_whoever_has_signed() {
        let folder = std::env::temp_dir().join(format!("keelson-trust-{}", std::process::id()));
        let (authority, another) = (Authority::new(), Authority::new());
        let own = authority.files(&folder, "*.orders.shop.svc");
        assert!(is_heard(&own, &own).await);
        for host in ["*.orders.other.svc", "*.bills.shop.svc", "localhost"] {
            assert!(!is_heard(&authority.files(&folder, host), &own).await, "{host}");
        }
        assert!(!is_heard(&another.files(&folder.join("another"), "*.orders.shop.svc"), &own).await);
        let stranger = Files(folder.join("stranger"));
        fs::create_dir_all(&stranger.0).unwrap();
        assert!(matches!(client_with(&stranger), Err(TrustError::File { file: "ca.crt", .. })));
        fs::remove_dir_all(&folder).unwrap();
    }
}
