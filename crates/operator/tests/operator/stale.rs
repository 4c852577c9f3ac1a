//! An operator that is started again and is told of the past for a while: it undoes nothing, and removes and
//! replaces nothing for what is no longer so.

use crate::acts::{Act, End, Incarnations, QUIET};
use crate::parallel::each;
use crate::way::{WATCHED, Way};
use crate::world::World;

/// Kinds of which an operator may be told of the past while it sees the others as they are: watches are behind
/// each by itself.
const ALONE: [&[&str]; 6] = [
    &["databases"],
    &["pods"],
    &["persistentvolumeclaims"],
    &["statefulsets"],
    &["configmaps"],
    &["serviceaccounts", "roles", "rolebindings", "services", "poddisruptionbudgets"],
];

/// Which moments of the past are told of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Past {
    /// All kinds, after each write of the act.
    Whole,
    /// A few kinds, from before the act and from the midst of it.
    InPart,
}

/// Lives through an act, then starts operators that see moments of it. The end of the act stays as it is.
async fn nothing_is_undone(act: Act, past: Past) {
    let world = World::new(&format!("past-{}-{past:?}", act.name()).to_lowercase()).await;
    let (incarnations, _watching) = Incarnations::of(&world);
    act.prepare(&world).await;
    let mut moments = vec![world.version().await];
    act.begin(&world).await;
    moments.push(world.version().await);
    let operator = world.hasty_operator_on(Way::clear()).await;
    act.end(&world).await;
    operator.is_quiet_for(QUIET).await;
    moments.extend(operator.way.moments());
    operator.stop().await;
    let well = End::of(&world, &incarnations).await;
    let views: Vec<(&[&str], &String)> = match past {
        Past::Whole => moments.iter().map(|moment| (&WATCHED[..], moment)).collect(),
        Past::InPart => {
            let some = [&moments[0], &moments[moments.len() / 2]];
            ALONE.iter().flat_map(|kinds| some.map(|moment| (*kinds, moment))).collect()
        }
    };
    for (number, (kinds, moment)) in views.into_iter().enumerate() {
        let way = Way::to_the_past(moment, kinds);
        let operator = world.hasty_operator_on(way.clone()).await;
        operator.acts_on_what_it_sees().await;
        match number % 2 {
            0 => way.speak(),
            _ => way.lose(),
        }
        operator.is_quiet_for(QUIET).await;
        let how =
            || format!("{act:?}, told of {kinds:?} in view {number}, having written {:#?}", way.written());
        well.comes_about(&world, &incarnations, how).await;
        operator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_of_the_past_undoes_removes_and_replaces_nothing() {
    let cases = Act::ALL.into_iter().flat_map(|act| [(act, Past::Whole), (act, Past::InPart)]);
    each(cases, |(act, past)| nothing_is_undone(act, past)).await;
}
