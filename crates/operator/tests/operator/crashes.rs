//! An operator that dies with its k-th write, for every k: the next one comes to the same end, whether it
//! sees the world as it is or as it was when the act began.

use std::ops::RangeInclusive;

use crate::acts::{Act, End, Incarnations, QUIET, reference};
use crate::parallel::each;
use crate::way::{WATCHED, Way};
use crate::world::World;

/// An act whose operator dies with its k-th write ends as it does when nothing goes wrong. Returns whether it
/// came to that.
async fn dies_with(act: Act, k: usize, next_sees_the_past: bool, well: &End) -> bool {
    let how = if next_sees_the_past { "past" } else { "now" };
    let world = World::new(&format!("dies-{}-{k}-{how}", act.name())).await;
    let (incarnations, _watching) = Incarnations::of(&world);
    act.prepare(&world).await;
    act.begin(&world).await;
    let then = world.version().await;
    let way = Way::to_death(k);
    let operator = world.hasty_operator_on(way.clone()).await;
    let died = operator
        .dies_before(async {
            act.end(&world).await;
            // What comes after the end of the act counts too.
            tokio::time::sleep(QUIET).await;
        })
        .await;
    if !died {
        return false;
    }
    let way = if next_sees_the_past { Way::to_the_past(&then, &WATCHED) } else { Way::clear() };
    let operator = world.hasty_operator_on(way.clone()).await;
    if next_sees_the_past {
        operator.acts_on_what_it_sees().await;
        way.speak();
    }
    act.end(&world).await;
    operator.is_quiet_for(QUIET).await;
    operator.stop().await;
    let how = || format!("{act:?}, death with write {k}, the next sees the past: {next_sees_the_past}");
    well.comes_about(&world, &incarnations, how).await;
    true
}

/// Every k until the act is over before the operator dies.
async fn the_end_is_the_same(act: Act, expected_writes: RangeInclusive<usize>) {
    let well = reference(act).await;
    let most = *expected_writes.end() + 1;
    // What is told of the past after other writes is tried in `stale`.
    let cases = (1..=most).map(|k| (k, false)).chain((1..=most).step_by(4).map(|k| (k, true)));
    let ends = each(cases, move |(k, past)| {
        let well = well.clone();
        async move { (past, dies_with(act, k, past, &well).await) }
    });
    let deaths = ends.await.into_iter().filter(|(past, died)| !past && *died).count();
    assert!(expected_writes.contains(&deaths), "{act:?} took {deaths} writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Create, 14..=20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scaling_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Scale, 3..=8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrinking_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Shrink, 5..=12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_out_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::RollOut, 8..=32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Upgrade, 6..=32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::HandOver, 4..=12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_the_same_whichever_write_was_the_last() {
    the_end_is_the_same(Act::Delete, 6..=10).await;
}
