//! The whole way on real PostgreSQL, in the file systems of its images: archived, backed up, and restored.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use keelson_api::instance::{
    BackupOrder, BackupReport, InPlaceRule, InstanceSettings, Names, RestorePoint, RestoreRule, Store, paths,
};
use keelson_engine::postgres::{self, Settings};
use keelson_engine::{Data as Folder, Engine, Layout, Offline, Secret, Stop};
use keelson_ha::Quorum;
use serde_json::json;
use testbed::{Look, until};

use super::*;
use crate::catching_up::bring_log;
use crate::facts::observe;
use crate::in_place;
use crate::restoring::{fetch_log, restore};
use crate::steps::Acting;

const LONG: Duration = Duration::from_secs(60);
/// What PostgreSQL calls: this very program, told by a variable what it is wanted for.
pub(crate) const PROGRAM: &str = "/mnt/ask";
const WISH: &str = "KEELSON_TEST_WISH";

pub(crate) fn layout(name: &str) -> Layout {
    let layout = Layout {
        volume: Path::new("/mnt").join(name),
        sockets: Path::new("/run").join(name),
        ..Layout::default()
    };
    std::fs::create_dir_all(&layout.volume).unwrap();
    std::fs::create_dir_all(&layout.sockets).unwrap();
    layout
}

pub(crate) fn settings(name: &str, port: u16) -> Settings {
    let password = Secret::new("for replicas");
    Settings {
        name: name.to_owned(),
        port,
        listen: "127.0.0.1".to_owned(),
        resources: postgres::Resources { memory: 256 << 20, cpu_millis: 1000, volume: 2 << 30 },
        parameters: BTreeMap::new(),
        tls: None,
        plain: false,
        replication: postgres::Credentials { role: "keelson_replication".to_owned(), password },
        archive: Some(postgres::Archive { segment_seconds: 60 }),
    }
}

pub(crate) fn store() -> Store {
    let repository = json!({"folder": {"claim": "disk", "path": "shop/orders"}});
    let repository = serde_json::from_value(repository).unwrap();
    Store { repository, credentials: None, key: None, folder: Some("/mnt/store".to_owned()) }
}

fn known() -> Known {
    let text = json!({
        "engine": "postgres", "version": "17", "replicas": 1,
        "durability": {"mode": "async", "whenAlone": "preferred"},
        "failover": {"ttlMillis": 5000, "lookMillis": 1000, "marginMillis": 1000, "maxLagBytes": 0},
        "app": {"database": "app", "role": "app"}
    });
    let mut settings: InstanceSettings = serde_json::from_value(text).unwrap();
    settings.backup = Some(BackupRule {
        to: store(),
        max_data_loss_seconds: 60,
        bandwidth: None,
        incrementals: 6,
        retention: Some("30d".to_owned()),
        order: None,
        marks: true,
        drill: None,
    });
    Known { settings, fingerprint: "1".to_owned() }
}

fn here() -> Environment {
    Environment {
        database: "orders".to_owned(),
        database_uid: "1".to_owned(),
        namespace: "shop".to_owned(),
        pod: "orders-0".to_owned(),
        uid: "2".to_owned(),
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        ordinal: 0,
        memory: 256 << 20,
        cpu_millis: 1000,
    }
}

/// What the driver knows of a primary that runs.
async fn facts(engine: &Postgres) -> Facts {
    let (data, status) = (engine.data().await.unwrap(), engine.status(LONG).await.unwrap());
    let acting = Acting::Primary(Quorum::default());
    Facts {
        order: 0,
        instance: observe(&acting, &data, Some(1), Some(&status), Names("orders")),
        status: Some(status),
        joining: false,
        followed: false,
        admits: false,
        heard: None,
        floored: false,
        fingerprint: None,
        credentials: None,
        restarted: None,
        gap: None,
        trouble: None,
    }
}

pub(crate) async fn sql(engine: &Postgres, statement: &str) -> String {
    let client = engine.connect().await.unwrap();
    let answer =
        client.simple_query(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    let row = answer.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    row.unwrap_or_default()
}

/// Ends the segment that is written to, and waits until all that is finished was sent.
pub(crate) async fn send(engine: &Postgres) {
    sql(engine, "SELECT pg_logical_emit_message(true, 'test', 'the end of a segment')").await;
    sql(engine, "SELECT pg_switch_wal()").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    until("the log to be sent", LONG, || async {
        match waiting(&engine.log_folder()).await {
            0 => Look::There(()),
            some => Look::NotYet(format!("{some} wait")),
        }
    })
    .await
    .unwrap();
}

pub(crate) async fn archived(
    told: &watch::Receiver<Told>,
    what: &str,
    holds: impl Fn(&ArchiveReport) -> bool,
) {
    until(what, LONG, || async {
        match told.borrow().archive.clone() {
            Some(archive) if holds(&archive) => Look::There(()),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

pub(crate) async fn backed_up(
    known: &watch::Sender<Known>,
    reports: &watch::Receiver<Option<BackupReport>>,
    uid: &str,
) {
    let order = |order| known.send_modify(|known| known.settings.backup.as_mut().unwrap().order = order);
    let (name, instance) = (uid.to_owned(), "orders-0".to_owned());
    order(Some(BackupOrder { name, uid: uid.to_owned(), instance, method: None, keep: false }));
    until("the backup to be complete", LONG, || async {
        match reports.borrow().clone() {
            Some(report) if report.uid == uid && report.phase.as_str() == "Complete" => Look::There(()),
            Some(report) if report.phase.as_str() == "Failed" => panic!("{report:?}"),
            other => Look::NotYet(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    order(None);
}

#[test]
fn what_is_archived_and_backed_up_is_restored_to_the_moment_that_is_wanted() {
    let name = "archiving::inside::what_is_archived_and_backed_up_is_restored_to_the_moment_that_is_wanted";
    testbed::inside::each_version(name, &[], the_whole_way);
}

#[test]
fn a_replica_finds_log_that_nobody_sends_it_in_the_repository() {
    let name = "archiving::inside::a_replica_finds_log_that_nobody_sends_it_in_the_repository";
    testbed::inside::each_version(name, &[], log_from_the_repository);
}

#[test]
fn a_database_goes_back_in_place_and_forth_again() {
    let name = "archiving::inside::a_database_goes_back_in_place_and_forth_again";
    testbed::inside::each_version(name, &[], in_place_and_back);
}

/// Called by PostgreSQL, as `keelson fetch-log` is.
#[test]
fn the_log_is_asked_for() {
    let Ok(wish) = std::env::var(WISH) else { return };
    let [socket, name, to] = wish.split(' ').collect::<Vec<_>>()[..] else { panic!("{wish}") };
    std::process::exit(fetch_log(Path::new(socket), name, Path::new(to)).into());
}

/// A primary whose log is archived, and those who would tell it anything.
pub(crate) struct Shop {
    pub known: watch::Sender<Known>,
    pub inputs: Inputs,
    pub tolds: watch::Receiver<Told>,
    _others: (watch::Sender<Facts>, watch::Sender<Report>, watch::Sender<Room>),
}

pub(crate) async fn primary() -> Arc<Postgres> {
    let one = Arc::new(Postgres::open(layout("one"), settings("one", 5432)).await.unwrap());
    one.initialise().await.unwrap();
    starts(&one, &keelson_engine::Role::Primary).await;
    one
}

async fn starts(engine: &Postgres, role: &keelson_engine::Role) {
    engine.start(role).await.unwrap();
    engine.ready(LONG).await.unwrap();
}

pub(crate) async fn archives(engine: Arc<Postgres>) -> Shop {
    let (known, knowns) = watch::channel(known());
    let (facts_of, facts) = watch::channel(facts(&engine).await);
    let (reports_of, reports) = watch::channel(Report { role: Role::Primary, ..Report::default() });
    let (room_of, room) = watch::channel(Room::default());
    let inputs = Inputs { here: here(), engine, known: knowns, facts, reports, room };
    let (told, tolds) = watch::channel(Told::default());
    follow(inputs.clone(), told);
    Shop { known, inputs, tolds, _others: (facts_of, reports_of, room_of) }
}

/// A copy of the primary that was away for a while, and that nobody sends anything.
async fn log_from_the_repository() {
    let one = primary().await;
    sql(&one, "CREATE TABLE public.t (i int)").await;
    one.stop(Stop::Fast, LONG).await.unwrap();
    let two = Postgres::open(layout("two"), settings("two", 5433)).await.unwrap();
    let copied = std::process::Command::new("cp").args(["-a", "/mnt/one/data", "/mnt/two/"]).status();
    assert!(copied.unwrap().success());
    starts(&one, &keelson_engine::Role::Primary).await;
    let _shop = archives(one.clone()).await;
    for number in 1..=6 {
        sql(&one, &format!("INSERT INTO public.t VALUES ({number})")).await;
        send(&one).await;
    }

    let (replica, waits) = (stopped(&two).await, waiting(&two.log_folder()).await);
    let foreign = bring_log(&two, &store(), &Offline { system: 1, ..replica.clone() }, 1 << 30).await;
    assert_eq!(foreign.unwrap_err().reason, backup_reasons::FOREIGN);
    let alone = keelson_engine::Role::Replica(None);
    assert_eq!(bring_log(&two, &store(), &replica, 3 * (16 << 20)).await, Ok(true), "there is more");
    starts(&two, &alone).await;
    let has = async |rows: usize| {
        until("what was brought to be replayed", LONG, || async {
            match sql(&two, "SELECT count(*) FROM public.t").await {
                count if count == rows.to_string() => Look::There(()),
                count => Look::NotYet(format!("{count} rows")),
            }
        })
        .await
        .unwrap();
    };
    has(3).await;
    two.stop(Stop::Fast, LONG).await.unwrap();
    assert_eq!(bring_log(&two, &store(), &stopped(&two).await, 1 << 30).await, Ok(false), "that is all");
    starts(&two, &alone).await;
    has(6).await;
    let now = waiting(&two.log_folder()).await;
    assert_eq!(now, waits, "what comes from the repository is not sent there");
    for engine in [&*one, &two] {
        engine.stop(Stop::Fast, LONG).await.unwrap();
    }
}

async fn stopped(engine: &Postgres) -> Offline {
    match engine.data().await.unwrap() {
        Folder::Present(replica) => replica,
        other => panic!("{other:?}"),
    }
}

/// Puts the program there that PostgreSQL calls for the log.
pub(crate) fn prepare_program() {
    let script = format!(
        "#!/bin/sh\n{WISH}=\"$2 $3 $4\" exec /mnt/program --exact archiving::inside::the_log_is_asked_for --nocapture\n"
    );
    std::fs::write(PROGRAM, script).unwrap();
    std::fs::set_permissions(PROGRAM, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(paths::RUN).unwrap();
}

async fn the_whole_way() {
    prepare_program();
    let one = primary().await;
    let Shop { known, inputs, tolds, .. } = &archives(one.clone()).await;
    let (backup, backups) = watch::channel(None);
    tokio::spawn(base::follow(inputs.clone(), backup));

    archived(tolds, "the repository to be empty", |archive| archive.backups == Some(vec![])).await;
    sql(&one, "CREATE TABLE public.t (i int)").await;
    sql(&one, "INSERT INTO public.t SELECT generate_series(1, 1000)").await;
    backed_up(known, &backups, "first").await;
    archived(tolds, "it to be on the shelf", |archive| archive.first_recoverable.is_some()).await;
    sql(&one, "INSERT INTO public.t VALUES (1001)").await;
    backed_up(known, &backups, "second").await;
    archived(tolds, "both", |archive| archive.backups.as_ref().is_some_and(|all| all.len() == 2)).await;
    let names = tolds.borrow().archive.clone().unwrap().backups.unwrap();
    assert!(names[1].contains("_D_"), "the second builds on the first: {names:?}");

    // A store that takes nothing is said, and ends nothing; when it is back, it gets what it has missed.
    let log = Path::new("/mnt/store/shop/orders/wal_005");
    let allow = |mode| std::fs::set_permissions(log, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o500);
    sql(&one, "INSERT INTO public.t VALUES (1002)").await;
    sql(&one, "SELECT pg_switch_wal()").await;
    archived(tolds, "it to be said", |archive| archive.reason.as_deref() == Some(backup_reasons::DENIED))
        .await;
    assert!(waiting(&one.log_folder()).await > 0, "nothing is dropped");
    allow(0o700);
    archived(tolds, "it to be over", |archive| archive.reason.is_none()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let moment = Timestamp::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    sql(&one, "DELETE FROM public.t").await;
    send(&one).await;

    let two = Postgres::open(layout("two"), settings("two", 5433)).await.unwrap();
    let wish = |to| RestoreRule { from: store(), backup: None, to, timeline: None };
    let early = wish(RestorePoint::Time(Timestamp::UNIX_EPOCH));
    let refused = restore(&two, &early, PROGRAM, |_| panic!("nothing begins")).await.unwrap_err();
    assert_eq!(refused.reason, backup_reasons::TARGET_REFUSED);
    assert!(refused.problem.contains("Possible is from"), "{}", refused.problem);

    // Something was archived at this moment, and nothing was committed between the last commit in it and then.
    let files = std::fs::read_dir(log).unwrap().map(|file| file.unwrap().metadata().unwrap());
    let stored = files.map(|file| file.modified().unwrap()).max().unwrap();
    let late = wish(RestorePoint::Time(Timestamp::try_from(stored).unwrap()));
    let refused = restore(&two, &late, PROGRAM, |_| ()).await.unwrap_err();
    assert_eq!((refused.reason, refused.passes), (backup_reasons::TARGET_REFUSED, false), "{refused:?}");
    assert!(refused.problem.contains("its last commit is of 20"), "{}", refused.problem);
    assert!(refused.problem.contains("Ask for an earlier moment"), "{}", refused.problem);

    restore(&two, &wish(RestorePoint::Time(moment)), PROGRAM, |_| ()).await.unwrap();
    starts(&two, &keelson_engine::Role::Primary).await;
    assert_eq!(sql(&two, "SELECT count(*) || ' ' || max(i) FROM public.t").await, "1002 1002");
    assert_eq!(two.status(LONG).await.unwrap().timeline, 2);

    // What was restored has the same system identifier, and may not write to the repository that it came from.
    let here = Environment { database: "copy".to_owned(), ..here() };
    let rule = known.borrow().settings.backup.clone().unwrap();
    let foreign = claim(&Inputs { here, ..inputs.clone() }, &rule).await.unwrap_err();
    assert_eq!(foreign.reason, backup_reasons::FOREIGN);
    assert!(foreign.problem.contains("shop/orders"), "{}", foreign.problem);
    for engine in [&*one, &two] {
        engine.stop(Stop::Fast, LONG).await.unwrap();
    }
}

/// To just before a mistake; and then, as that was none after all, to the end of the timeline that was left.
async fn in_place_and_back() {
    prepare_program();
    let one = primary().await;
    let Shop { known, inputs, tolds, .. } = &archives(one.clone()).await;
    let (backup, backups) = watch::channel(None);
    tokio::spawn(base::follow(inputs.clone(), backup));
    archived(tolds, "the repository to be empty", |archive| archive.backups == Some(vec![])).await;
    sql(&one, "CREATE TABLE public.t (i int)").await;
    backed_up(known, &backups, "first").await;
    sql(&one, "INSERT INTO public.t SELECT generate_series(1, 1000)").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let moment = Timestamp::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    sql(&one, "DELETE FROM public.t").await;

    let wish = |name: &str, to, timeline| InPlaceRule {
        name: name.to_owned(),
        rule: RestoreRule { from: store(), backup: None, to, timeline },
    };
    let early = wish("early", RestorePoint::Time(Timestamp::UNIX_EPOCH), None);
    let refused = in_place::look(inputs, &early).await.unwrap_err();
    assert_eq!((refused.reason, refused.passes), (backup_reasons::TARGET_REFUSED, false));
    assert!(refused.problem.contains("Possible is from"), "{}", refused.problem);
    assert_eq!(sql(&one, "SELECT count(*) FROM public.t").await, "0", "it has gone on");

    // Nobody has waited for the log to be sent.
    let undo = wish("undo", RestorePoint::Time(moment), None);
    in_place::look(inputs, &undo).await.unwrap();
    sql(&one, "INSERT INTO public.t VALUES (7)").await;
    one.stop(Stop::Fast, LONG).await.unwrap();
    in_place::restore(&one, &undo, "shop/orders", 5, PROGRAM).await.unwrap();
    let made = one.restored().unwrap();
    assert_eq!((made.name.as_str(), made.timeline), ("undo", 5));
    one.place_restored().await.unwrap();
    one.discard_restored().await.unwrap();
    starts(&one, &keelson_engine::Role::Primary).await;
    assert_eq!(sql(&one, "SELECT count(*) FROM public.t").await, "1000");
    assert_eq!(one.status(LONG).await.unwrap().timeline, 5);
    sql(&one, "INSERT INTO public.t VALUES (1001)").await;
    send(&one).await;

    let again = wish("again", RestorePoint::Latest, Some(1));
    let refused = in_place::look(inputs, &again).await.unwrap_err();
    assert!(refused.problem.contains("keelson.dev/discard-old-data=undo"), "{}", refused.problem);
    assert!(one.discard_kept("undo").await.unwrap());
    in_place::look(inputs, &again).await.unwrap();
    one.stop(Stop::Fast, LONG).await.unwrap();
    in_place::restore(&one, &again, "shop/orders", 6, PROGRAM).await.unwrap();
    one.place_restored().await.unwrap();
    starts(&one, &keelson_engine::Role::Primary).await;
    assert_eq!(
        sql(&one, "SELECT count(*) || ' ' || max(i) FROM public.t").await,
        "1 7",
        "all there was, to the last"
    );
    assert_eq!(one.status(LONG).await.unwrap().timeline, 6);
    one.stop(Stop::Fast, LONG).await.unwrap();
}
