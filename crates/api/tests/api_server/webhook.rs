//! A webhook server of the smallest kind: TLS on loopback, one request a connection.

use std::io;
use std::sync::Arc;

use keelson_api::crds::CONVERT_PATH;
use keelson_api::{admission, convert};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Serves until its runtime ends. Returns its address and its certificate.
pub async fn serve() -> (String, String) {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(acceptor.clone(), stream));
        }
    });
    (url, certified.cert.pem())
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut bytes = Vec::new();
    let body = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        if let Some(body) = body(&bytes) {
            break body;
        }
    };
    let review: Value = serde_json::from_slice(body)?;
    let convert = bytes.starts_with(format!("POST {CONVERT_PATH}").as_bytes());
    let answer = if convert { convert::review(review) } else { admission::review(&review) }.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length:";
    stream.write_all(format!("{head} {}\r\n\r\n{answer}", answer.len()).as_bytes()).await?;
    stream.shutdown().await
}

/// The body of a request, once all of it is there.
fn body(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
    bytes[end..].get(..length)
}
