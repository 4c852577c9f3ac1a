//! `install` and `doctor`, on an API server that has never heard of Keelson.

use testbed::ControlPlane;

use crate::world::{call, client, served};

#[tokio::test]
async fn what_is_missing_is_said_until_it_is_installed() {
    let plane = ControlPlane::start().await.unwrap();
    let kubeconfig = plane.kubeconfig();
    let status = call(&kubeconfig, &["status"]);
    assert_eq!(status.code, 1);
    assert!(
        status.err.contains("does not know the kinds of Keelson") && status.err.contains("install"),
        "{}",
        status.err
    );
    let before = call(&kubeconfig, &["doctor"]);
    assert_eq!(before.code, 2, "{before:?}");
    assert!(before.out.contains("databases.keelson.dev is not there"), "{}", before.out);

    let shown = call(&kubeconfig, &["install", "--dry-run", "--image", "example/keelson:7"]);
    assert!(shown.code == 0 && shown.out.contains("image: \"example/keelson:7\""), "{shown:?}");
    let installed = call(&kubeconfig, &["install", "--image", "example/keelson:7", "--timeout", "0"]);
    assert_eq!(installed.code, 0, "{installed:?}");
    served(&client(&kubeconfig).await).await;
    let again = call(&kubeconfig, &["install", "--image", "example/keelson:7", "--timeout", "0"]);
    assert_eq!(again.code, 0, "{again:?}");
    let waits = call(&kubeconfig, &["install", "--image", "example/keelson:7", "--timeout", "2"]);
    assert!(waits.code == 1 && waits.err.contains("0 of 2 operators are ready"), "{waits:?}");

    let after = call(&kubeconfig, &["doctor"]);
    assert_eq!(after.code, 2, "there is no operator, and no authority of webhooks: {after:?}");
    for words in [
        "ok    Kubernetes",
        "ok    definitions        backups.keelson.dev serves v1",
        "databases.keelson.dev does not trust the conversion webhook",
        "keelson-system/keelson: none of 2 is ready",
        "ok    admission rules",
        "ok    operator's rights",
    ] {
        assert!(after.out.contains(words), "{words}: {}", after.out);
    }
}
