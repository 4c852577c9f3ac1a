//! What agents of one database ask each other: HTTPS, with a certificate of the database's own on both sides.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use keelson_api::instance::{Report, paths};
use keelson_kit::serve::{Handler, handler, text};
use thiserror::Error;
use tokio::sync::watch;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// Why the agent's own page can't be served.
#[derive(Debug, Error)]
pub enum PeersError {
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

/// Whoever has no certificate that this database's authority has signed is not answered.
pub fn tls() -> Result<Arc<ServerConfig>, PeersError> {
    let folder = Path::new(paths::TLS);
    let file = |file: &'static str| {
        move |why: rustls::pki_types::pem::Error| PeersError::File { file, why: why.to_string() }
    };
    let read = |name: &'static str| {
        let found = CertificateDer::pem_file_iter(folder.join(name)).map_err(file(name))?;
        found.collect::<Result<Vec<_>, _>>().map_err(file(name))
    };
    let wrong = |error: &dyn std::fmt::Display| PeersError::Tls(error.to_string());
    let mut trusted = RootCertStore::empty();
    for authority in read("ca.crt")? {
        trusted.add(authority).map_err(|error| wrong(&error))?;
    }
    let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).map_err(file("tls.key"))?;
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider.clone());
    let verifier = verifier.build().map_err(|error| wrong(&error))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(read("tls.crt")?, key)
        .map_err(|error| wrong(&error))?;
    Ok(Arc::new(config))
}

/// Answers `GET /v1/state` with the report.
pub fn page(report: watch::Receiver<Report>) -> Handler {
    handler(move |request: Request<Bytes>| {
        let report = report.clone();
        async move { answer(&request, &report.borrow()) }
    })
}

fn answer(request: &Request<Bytes>, report: &Report) -> Response<Bytes> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/state") => match serde_json::to_string(report) {
            Ok(report) => text(StatusCode::OK, report),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        _ => text(StatusCode::NOT_FOUND, "there is nothing here\n"),
    }
}
