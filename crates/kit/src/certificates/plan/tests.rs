use super::*;

const SECOND: Duration = Duration::from_secs(1);
const CARRIED: Sighting = Sighting::Carries(1);

pub(super) fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(super) fn settings() -> Settings {
    Settings {
        lifetime: 300 * SECOND,
        renew_before: 200 * SECOND,
        settle: 20 * SECOND,
        look: 10 * SECOND,
        backdate: 15 * SECOND,
    }
}

/// A pair that is nothing but a name.
pub(super) fn pair(name: &str, names: &[String], made: i64) -> Pair<()> {
    let until = Time(moment(made + 300));
    Pair {
        authority: Authority { certificate: format!("<{name}>"), until },
        from: Time(moment(made - 15)),
        names: names.to_vec(),
        signed: (),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn state(serving: Pair<()>, next: Option<Pair<()>>) -> State<()> {
    State { serving, next, trusted: Vec::new() }
}

struct Scene {
    start: Instant,
    replica: Replica<()>,
}

impl Scene {
    fn new(wanted: &[&str]) -> Scene {
        Scene { start: Instant::now(), replica: Replica::new(names(wanted), settings()) }
    }

    fn look(&mut self, stored: Option<&State<()>>, sighting: Sighting, second: u64) -> Step {
        let clock = self.start + Duration::from_secs(second);
        self.replica.look(stored, vec![sighting], moment(second.try_into().unwrap()), clock).0
    }

    fn after(&self, step: Step, second: i64) -> State<()> {
        let fresh = |names: &[String]| Ok::<_, ()>(pair("fresh", names, second));
        self.replica.after(step, moment(second), fresh).unwrap().unwrap()
    }
}

#[test]
fn a_renewal_is_announced_carried_settled_and_only_then_served() {
    let mut scene = Scene::new(&["a"]);
    assert_eq!(scene.look(None, Sighting::Idle, 0), Step::Begin);
    let first = scene.after(Step::Begin, 0);
    assert_eq!(scene.look(Some(&first), Sighting::Lacks, 1), Step::Keep);
    assert_eq!(scene.look(Some(&first), CARRIED, 99), Step::Keep);
    assert_eq!(scene.look(Some(&first), CARRIED, 100), Step::Announce, "a third of its life is over");
    let announced = state(first.serving.clone(), Some(pair("next", &names(&["a"]), 100)));
    assert_eq!(announced.bundle(), "<fresh><next>");
    assert_eq!(scene.look(Some(&announced), Sighting::Lacks, 101), Step::Keep);
    assert_eq!(scene.look(Some(&announced), CARRIED, 102), Step::Keep);
    assert_eq!(scene.look(Some(&announced), CARRIED, 121), Step::Keep, "not for long enough");
    assert_eq!(scene.look(Some(&announced), CARRIED, 122), Step::Switch);
    let switched = scene.after(Step::Switch, 122);
    assert_eq!(switched.bundle(), "<next><fresh>", "the old one stays trusted");
    assert_eq!(scene.look(Some(&switched), CARRIED, 123), Step::Keep);
}

#[test]
fn the_wait_begins_anew_when_a_target_is_changed_or_cannot_be_seen() {
    let announced = state(pair("one", &names(&["a"]), 0), Some(pair("two", &names(&["a"]), 100)));
    for disturbance in [Sighting::Lacks, Sighting::Unknown, Sighting::Carries(2)] {
        let mut scene = Scene::new(&["a"]);
        assert_eq!(scene.look(Some(&announced), CARRIED, 100), Step::Keep);
        assert_eq!(scene.look(Some(&announced), disturbance, 119), Step::Keep);
        assert_eq!(scene.look(Some(&announced), CARRIED, 120), Step::Keep);
        assert_eq!(scene.look(Some(&announced), CARRIED, 139), Step::Keep);
        assert_eq!(scene.look(Some(&announced), CARRIED, 140), Step::Switch, "{disturbance:?}");
    }
}

#[test]
fn a_target_that_is_not_there_holds_nothing_up() {
    let announced = state(pair("one", &names(&["a"]), 0), Some(pair("two", &names(&["a"]), 100)));
    let mut scene = Scene::new(&["a"]);
    scene.look(Some(&announced), Sighting::Idle, 100);
    assert_eq!(scene.look(Some(&announced), Sighting::Idle, 120), Step::Switch);
}

#[test]
fn when_the_certificate_has_expired_there_is_nothing_to_wait_for() {
    let next = Some(pair("two", &names(&["a"]), 150));
    let mut scene = Scene::new(&["a"]);
    let announced = state(pair("one", &names(&["a"]), 0), next);
    assert_eq!(scene.look(Some(&announced), Sighting::Unknown, 249), Step::Keep);
    assert_eq!(scene.look(Some(&announced), Sighting::Unknown, 250), Step::Announce, "the next is old too");
    assert_eq!(scene.look(Some(&announced), Sighting::Unknown, 300), Step::Begin);
    let announced = state(pair("one", &names(&["a"]), 0), Some(pair("three", &names(&["a"]), 250)));
    assert_eq!(scene.look(Some(&announced), Sighting::Unknown, 300), Step::Switch);
}

#[test]
fn what_was_lost_is_restored_while_somebody_knows_it_and_renewed() {
    let mut scene = Scene::new(&["a"]);
    let first = state(pair("one", &names(&["a"]), 0), Some(pair("two", &names(&["a"]), 0)));
    scene.look(Some(&first), CARRIED, 1);
    assert_eq!(scene.look(None, CARRIED, 2), Step::Restore);
    let restored = scene.after(Step::Restore, 2);
    assert_eq!(restored.serving, first.serving);
    assert_eq!(restored.bundle(), "<one><fresh><two>", "somebody may serve with what was to be next");
    assert_eq!(scene.look(None, CARRIED, 300), Step::Begin, "what is known has expired");
}

#[test]
fn an_authority_is_dropped_with_the_first_write_after_its_end_by_any_clock() {
    let mut scene = Scene::new(&["a"]);
    let mut old = state(pair("two", &names(&["a"]), 200), None);
    old.trusted = vec![pair("one", &names(&["a"]), 0).authority];
    scene.look(Some(&old), CARRIED, 314);
    assert_eq!(scene.after(Step::Announce, 314).bundle(), "<two><fresh><one>");
    assert_eq!(scene.after(Step::Announce, 315).bundle(), "<two><fresh>");
}

#[test]
fn replicas_that_want_different_names_agree_on_all_of_them() {
    let stored = state(pair("one", &names(&["a"]), 0), None);
    let mut left = Scene::new(&["a", "left"]);
    assert_eq!(left.look(Some(&stored), CARRIED, 1), Step::Announce);
    let stored = left.after(Step::Announce, 1);
    let mut right = Scene::new(&["a", "right"]);
    assert_eq!(right.look(Some(&stored), CARRIED, 2), Step::Announce);
    let stored = right.after(Step::Announce, 2);
    assert_eq!(stored.next.as_ref().unwrap().names, ["a", "left", "right"]);
    for scene in [&mut left, &mut right] {
        assert_eq!(scene.look(Some(&stored), CARRIED, 3), Step::Keep);
    }
    let mut alone = Scene::new(&["a"]);
    let stored = state(stored.next.unwrap(), None);
    assert_eq!(alone.look(Some(&stored), CARRIED, 250), Step::Announce);
    assert_eq!(alone.after(Step::Announce, 250).next.unwrap().names, ["a"], "at a renewal all are dropped");
}

#[test]
fn a_next_pair_from_the_future_is_replaced_before_it_does_harm() {
    let stored = state(pair("one", &names(&["a"]), 0), Some(pair("wrong", &names(&["a"]), 10_000)));
    assert_eq!(Scene::new(&["a"]).look(Some(&stored), CARRIED, 100), Step::Announce);
}

#[test]
fn the_next_look_is_when_something_is_due_and_no_later_than_the_setting() {
    let mut scene = Scene::new(&["a"]);
    let stored = state(pair("one", &names(&["a"]), 0), None);
    let mut again = |stored: &State<()>, second: i64| {
        let clock = scene.start + Duration::from_secs(second.unsigned_abs());
        scene.replica.look(Some(stored), vec![CARRIED], moment(second), clock).1
    };
    assert_eq!(again(&stored, 50), 10 * SECOND);
    assert_eq!(again(&stored, 97), 3 * SECOND);
    let announced = state(stored.serving, Some(pair("two", &names(&["a"]), 100)));
    assert_eq!(again(&announced, 100), 10 * SECOND);
    assert_eq!(again(&announced, 118), 2 * SECOND);
}

#[test]
fn senseless_settings_do_not_make_it_renew_without_end() {
    let senseless = Settings { renew_before: 900 * SECOND, ..settings() };
    let stored = state(pair("one", &names(&["a"]), 0), None);
    let mut replica = Replica::new(names(&["a"]), senseless);
    let (step, _) = replica.look(Some(&stored), vec![CARRIED], moment(10), Instant::now());
    assert_eq!(step, Step::Keep);
}
