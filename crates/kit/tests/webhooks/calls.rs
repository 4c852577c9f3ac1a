//! That webhooks are called at all, and what two replicas do that start at once.

use kube::api::PostParams;
use testbed::ControlPlane;

use crate::plane::{Replica, STEADY, authority, bundles, in_force, install, ready, stored, thing, things};

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_that_start_at_once_share_one_certificate_and_convert_judge_and_change() {
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.client();
    let (one, other) = tokio::join!(Replica::start(&plane, STEADY), Replica::start(&plane, STEADY));
    // Each of them is called for something.
    install(&client, &one.url, &other.url).await;
    for replica in [&one, &other] {
        ready(replica).await;
    }
    in_force(&client).await;

    let (document, version) = stored(&client).await.unwrap();
    let bundle = authority(&document, "serving");
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 1);
    assert!(bundles(&client).await.iter().all(|(carried, _)| *carried == bundle), "one authority");
    assert_eq!(one.certificates.until(), other.certificates.until());

    let made = things(&client, "v1").create(&PostParams::default(), &thing("small", 7)).await.unwrap();
    assert_eq!(made.data["spec"]["size"], 7, "in the version in which it was written");
    let seen = things(&client, "v2").get("small").await.unwrap();
    assert_eq!(seen.data["spec"]["extent"]["size"], 7, "converted");
    assert_eq!(seen.data["spec"]["note"], "seen", "changed");
    let refused = things(&client, "v1").create(&PostParams::default(), &thing("large", 700)).await;
    assert!(refused.unwrap_err().to_string().contains("too large a thing"), "judged");
    assert_eq!(stored(&client).await.unwrap().1, version, "and nothing was written twice");
    one.stop().await;
    other.stop().await;
}
