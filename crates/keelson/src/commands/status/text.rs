//! How databases are, for people.

use super::view::{BackupsView, DatabaseView, InstanceView, LeadershipView, Problem, Row, Verdict};
use crate::commands::paint::{Paint, Tone};
use crate::commands::table::{Cell, Table};
use crate::commands::words::{bytes, listed, moment, program, span};

/// A table of many. Without a place, of all namespaces.
pub fn table(rows: &[Row], place: Option<&str>, paint: Paint) -> String {
    if rows.is_empty() {
        let program = program();
        return match place {
            Some(namespace) => format!(
                "there is no Database in the namespace {namespace}. `{program} status --all-namespaces` looks everywhere\n"
            ),
            None => {
                "there is no Database in any namespace. A first one is six lines: examples/six-lines.yaml\n"
                    .to_owned()
            }
        };
    }
    let heading = ["NAMESPACE", "NAME", "VERSION", "READY", "PHASE", "PRIMARY", "BACKUP", "AGE", "WRONG"];
    let mut table = match place {
        None => Table::headed(heading),
        Some(_) => {
            Table::headed(["", "NAME", "VERSION", "READY", "PHASE", "PRIMARY", "BACKUP", "AGE", "WRONG"])
        }
    };
    for row in rows {
        let namespace = if place.is_none() { row.namespace.as_str() } else { "" };
        let complete = if row.ready >= row.replicas { Tone::Plain } else { Tone::Warn };
        table.row([
            namespace.into(),
            Cell::of(&row.name, Tone::Strong),
            row.version.as_str().into(),
            Cell::of(format!("{}/{}", row.ready, row.replicas), complete),
            Cell::of(&row.phase, tone(row.verdict)),
            row.primary.as_deref().unwrap_or("-").into(),
            row.backup_seconds_ago.map_or("-".to_owned(), span).into(),
            span(row.age_seconds).into(),
            Cell::of(row.reason.as_deref().unwrap_or_default(), Tone::Bad),
        ]);
    }
    table.text(paint)
}

const fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Well => Tone::Good,
        Verdict::UnderWay => Tone::Warn,
        Verdict::Wrong => Tone::Bad,
    }
}

/// One in full.
pub fn database(view: &DatabaseView, paint: Paint) -> String {
    let row = &view.row;
    let mut text = format!(
        "{}  {}  {}  {} of {} ready  {} old\n",
        paint.tone(Tone::Strong, &format!("{}/{}", row.namespace, row.name)),
        row.version,
        paint.tone(tone(view.verdict), &row.phase),
        row.ready,
        row.replicas,
        span(row.age_seconds)
    );
    if let Some(endpoint) = &view.endpoint {
        text += &format!("write to {endpoint}\n");
    }
    if !view.is_seen {
        text += "the operator has not looked at the last change of the spec yet\n";
    }
    if let Some(progress) = &view.progress {
        text += &format!("under way: {progress}\n");
    }
    if !view.problems.is_empty() {
        text += &section("What is wrong", paint);
        for problem in &view.problems {
            text += &wrong(problem, paint);
        }
    }
    text += &section("Instances", paint);
    text += &topology(&view.instances, paint);
    text += &section("Leadership", paint);
    text += &leading(view, paint);
    if let Some(backups) = &view.backups {
        text += &section("Backups", paint);
        text += &recoverable(backups, paint);
    }
    if !view.events.is_empty() {
        text += &section("Events", paint);
        text += &events(view, paint);
    }
    for unread in &view.unread {
        text += &format!("\nnot shown, since it can't be read: {unread}\n");
    }
    text
}

fn section(name: &str, paint: Paint) -> String {
    format!("\n{}\n", paint.tone(Tone::Strong, name))
}

fn wrong(problem: &Problem, paint: Paint) -> String {
    let Problem { condition, reason, message, since_seconds, hint, docs } = problem;
    let mut text =
        format!("  {} ({condition}, for {})\n", paint.tone(Tone::Bad, reason), span(*since_seconds));
    text += &format!("    {message}\n");
    if let Some(hint) = hint {
        text += &format!("    → {hint}\n");
    }
    if let Some(docs) = docs {
        text += &format!("    {}\n", paint.tone(Tone::Faint, &format!("see {docs}")));
    }
    text
}

/// The primary, and what follows it.
fn topology(instances: &[InstanceView], paint: Paint) -> String {
    if instances.is_empty() {
        return "  none yet\n".to_owned();
    }
    let has_primary = instances.first().is_some_and(|first| first.role == "primary");
    let mut table = Table::indented(2);
    for (number, one) in instances.iter().enumerate() {
        let stem = match (has_primary, number, number + 1 == instances.len()) {
            (false, ..) | (_, 0, _) => "",
            (.., true) => "└ ",
            _ => "├ ",
        };
        let ready = if one.ready { Cell::of("ready", Tone::Good) } else { Cell::of("not ready", Tone::Bad) };
        let lag = one.lag_bytes.map(|lag| format!("{} behind", bytes(lag))).filter(|_| one.role != "primary");
        table.row([
            Cell::of(format!("{stem}{}", one.name), if number == 0 { Tone::Strong } else { Tone::Plain }),
            one.role.as_str().into(),
            ready,
            lag.unwrap_or_default().into(),
            one.timeline.map(|timeline| format!("timeline {timeline}")).unwrap_or_default().into(),
            one.node.clone().unwrap_or_default().into(),
            one.volume.clone().unwrap_or_default().into(),
            match one.restarts {
                0 => String::new().into(),
                1 => Cell::of("1 restart", Tone::Warn),
                many => Cell::of(format!("{many} restarts"), Tone::Warn),
            },
            one.age_seconds.map(|age| format!("{} old", span(age))).unwrap_or_default().into(),
            Cell::of(one.waits.clone().unwrap_or_default(), Tone::Warn),
        ]);
    }
    table.text(paint)
}

fn leading(view: &DatabaseView, paint: Paint) -> String {
    let mut text = String::new();
    match &view.lease {
        None => text += "  nobody has led yet\n",
        Some(lease) => {
            let epoch = lease.epoch.map(|epoch| format!(" in epoch {epoch}")).unwrap_or_default();
            let renewed = lease.renewed_seconds_ago.map(|ago| format!(", renewed {} ago", span(ago)));
            let holder = match &lease.holder {
                Some(holder) => format!("{holder} leads{epoch}{}", renewed.unwrap_or_default()),
                None => format!("nobody leads{epoch}{}", renewed.unwrap_or_default()),
            };
            let tone = if lease.is_stale() { Tone::Bad } else { Tone::Plain };
            text += &format!("  {}\n", paint.tone(tone, &holder));
            let waits = match lease.commits_wait_for {
                0 => "commits wait for nobody else".to_owned(),
                count => format!("commits wait for {count} of the others"),
            };
            text += &format!("  may be elected: {}; {waits}\n", listed(&lease.electable));
            if let Some(to) = &lease.handover_to {
                text += &format!("  is to be handed over to {to}\n");
            }
        }
    }
    let mut table = Table::indented(2);
    for one in &view.leaderships {
        table.row([
            Cell::of(moment(one.since), Tone::Faint),
            format!("{} {}", one.who, one.why).into(),
            before(one).into(),
        ]);
    }
    text + &table.text(paint)
}

/// What it cost.
fn before(one: &LeadershipView) -> String {
    let gap = one.gap_millis.map(|gap| format!("no writes for {}.{:03} s", gap / 1000, gap % 1000));
    let lost = one.lost_bytes.map(|lost| format!("{} of the log were not there", bytes(lost)));
    gap.into_iter().chain(lost).collect::<Vec<_>>().join("; ")
}

fn recoverable(backups: &BackupsView, paint: Paint) -> String {
    let mut table = Table::indented(2);
    let mut say = |what: &str, words: String, tone: Tone| table.row([what.into(), Cell::of(words, tone)]);
    match (&backups.last, backups.last_seconds_ago) {
        (Some(last), Some(ago)) => say("last", format!("{last}, {} ago", span(ago)), Tone::Plain),
        _ => say("last", "none is complete".to_owned(), Tone::Warn),
    }
    if let Some((name, percent)) = &backups.running {
        say("running", percent.map_or(name.clone(), |percent| format!("{name}, {percent} %")), Tone::Plain);
    }
    if let Some(failed) = &backups.failed {
        say("failed", format!("{failed}: kubectl describe backup {failed} says why"), Tone::Bad);
    }
    if let Some(next) = backups.next_in_seconds {
        let words = if next > 0 { format!("in {}", span(next)) } else { "now".to_owned() };
        say("next", words, Tone::Plain);
    }
    match (backups.first_recoverable, backups.last_recoverable) {
        (Some(first), Some(last)) => {
            say("can be restored", format!("{} to {}", moment(first), moment(last)), Tone::Plain);
        }
        _ => say("can be restored", "nothing yet".to_owned(), Tone::Warn),
    }
    if let Some(lag) = backups.archive_lag_bytes {
        say("log not sent yet", bytes(lag), Tone::Plain);
    }
    match (backups.drill_seconds_ago, backups.drill_seconds) {
        (Some(ago), took) => {
            let took = took.map(|took| format!(", which took {}", span(took))).unwrap_or_default();
            say("restore rehearsed", format!("{} ago{took}", span(ago)), Tone::Good);
        }
        (None, _) => say("restore rehearsed", "never".to_owned(), Tone::Faint),
    }
    table.text(paint)
}

fn events(view: &DatabaseView, paint: Paint) -> String {
    let mut table = Table::indented(2);
    for event in &view.events {
        let tone = if event.warning { Tone::Warn } else { Tone::Plain };
        let times = if event.count > 1 { format!("{}×", event.count) } else { String::new() };
        table.row([
            Cell::of(moment(event.time), Tone::Faint),
            event.about.as_str().into(),
            Cell::of(&event.reason, tone),
            times.into(),
            event.message.replace('\n', " ").into(),
        ]);
    }
    table.text(paint)
}
