//! A store that fails when it is told to, for tests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// In memory. After so many more changes it is away, until it is told to come back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shaky {
    inner: Arc<InMemory>,
    left: Arc<AtomicI64>,
    refused: Arc<AtomicUsize>,
}

impl Shaky {
    pub(crate) fn new() -> Shaky {
        let shaky = Shaky::default();
        shaky.come_back();
        shaky
    }

    /// From then on, nothing works.
    pub(crate) fn fail_after(&self, changes: i64) {
        self.left.store(changes, Ordering::SeqCst);
    }

    pub(crate) fn come_back(&self) {
        self.left.store(i64::MAX, Ordering::SeqCst);
    }

    /// How often it said no.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    fn change(&self) -> Result<()> {
        self.answer(self.left.fetch_sub(1, Ordering::SeqCst) > 0)
    }

    fn read(&self) -> Result<()> {
        self.answer(self.left.load(Ordering::SeqCst) > 0)
    }

    fn answer(&self, well: bool) -> Result<()> {
        if well {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Err(object_store::Error::Generic { store: "shaky", source: "connection refused".into() })
    }
}

impl fmt::Display for Shaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shaky")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Shaky {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.change()?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.change()?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.read()?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let shaky = self.clone();
        let allowed = locations.map(move |location| shaky.change().and(location)).boxed();
        self.inner.delete_stream(allowed)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.read() {
            Ok(()) => self.inner.list(prefix),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.read()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.change()?;
        self.inner.copy_opts(from, to, options).await
    }
}
