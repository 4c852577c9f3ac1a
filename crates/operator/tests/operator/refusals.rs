//! Writes that are refused, that hang, and that are made without the operator hearing of it: each act ends the
//! same.

use crate::acts::{Act, End, Incarnations, QUIET, reference};
use crate::parallel::each;
use crate::way::{Refusal, Way};
use crate::world::World;

const SEEDS: u64 = 3;

/// So many writes may fail; then the API server has recovered.
const FAILING: usize = 30;

const REFUSALS: [Refusal; 8] = [
    Refusal::Answer(409),
    Refusal::Answer(429),
    Refusal::Answer(500),
    Refusal::Answer(503),
    Refusal::Answer(504),
    Refusal::Lost,
    Refusal::LostInTime,
    Refusal::Hang,
];

/// Every third write meets something.
fn drawn(seed: u64) -> Vec<Option<Refusal>> {
    let mut chance = fastrand::Rng::with_seed(seed);
    (0..FAILING).map(|_| (chance.u8(..3) == 0).then(|| REFUSALS[chance.usize(..REFUSALS.len())])).collect()
}

async fn refused(act: Act, seed: u64, well: &End) {
    let world = World::new(&format!("refused-{}-{seed}", act.name())).await;
    let (incarnations, _watching) = Incarnations::of(&world);
    act.prepare(&world).await;
    let meets = drawn(seed);
    let way = Way::refusing(move |number| meets.get(number - 1).copied().flatten());
    let operator = world.hasty_operator_on(way.clone()).await;
    act.begin(&world).await;
    act.end(&world).await;
    operator.is_quiet_for(QUIET).await;
    let how = || format!("{act:?} with {:?}, having written {:#?}", drawn(seed), way.written());
    well.comes_about(&world, &incarnations, how).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_fail_in_any_way_change_no_end() {
    let ends = each(Act::ALL, |act| async move { (act, reference(act).await) }).await;
    let cases =
        ends.into_iter().flat_map(|(act, well)| (0..SEEDS).map(move |seed| (act, well.clone(), seed)));
    each(cases, |(act, well, seed)| async move { refused(act, seed, &well).await }).await;
}
