//! What would be done, for people.

use serde_json::Value;

use super::diff::{Change, plain};
use super::view::{ChildView, PlanView, Verdict};
use crate::commands::hints;
use crate::commands::paint::{Paint, Tone};
use crate::commands::words::listed;

/// Longer values are cut.
const LONGEST: usize = 60;

/// Several, and what else was in the files.
pub fn plans(views: &[PlanView], others: &[String], paint: Paint) -> String {
    let all: Vec<String> = views.iter().map(|view| plan(view, paint)).collect();
    let mut text = all.join("\n");
    if !others.is_empty() {
        text += &format!("\nnot looked at, since they are no Databases: {}\n", listed(others));
    }
    text
}

fn plan(view: &PlanView, paint: Paint) -> String {
    let (words, tone) = match (view.verdict, view.exists) {
        (Verdict::Nothing, _) => ("nothing to do", Tone::Good),
        (Verdict::Changes, false) => ("is made", Tone::Warn),
        (Verdict::Changes, true) => ("changes, and no instance is disturbed", Tone::Warn),
        (Verdict::Restarts, _) => ("changes, and instances restart or change places", Tone::Warn),
        (Verdict::Refused, _) => ("nothing would be done", Tone::Bad),
    };
    let name = paint.tone(Tone::Strong, &format!("{}/{}", view.namespace, view.name));
    let mut text = format!("{name}: {}\n", paint.tone(tone, words));
    let mut section = |name: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text += &format!("\n{}\n", paint.tone(Tone::Strong, name));
            lines.iter().for_each(|line| text += &format!("  {line}\n"));
        }
    };
    section("What is asked for", view.asked.iter().map(|change| changed(change, paint)).collect());
    if let Some(refusal) = &view.refused {
        let mut lines = vec![match &refusal.reason {
            Some(reason) => format!("{}: {}", paint.tone(Tone::Bad, reason), refusal.message),
            None => refusal.message.clone(),
        }];
        if let Some(hint) = refusal.reason.as_deref().and_then(hints::of) {
            lines
                .extend([format!("→ {}", hint.what), paint.tone(Tone::Faint, &format!("see {}", hint.docs))]);
        }
        section(&format!("Why not: {} says", refusal.by), lines);
    }
    section("What is made or changed", view.children.iter().flat_map(|child| made(child, paint)).collect());
    let steps = view.steps.iter().enumerate();
    let steps = steps.map(|(number, step)| {
        let tone = if step.disturbs { Tone::Warn } else { Tone::Plain };
        format!("{}. {}", number + 1, paint.tone(tone, &step.words))
    });
    section("What is done then, one thing after another", steps.collect());
    section("Then it waits for what can't be foretold", view.waits.iter().cloned().collect());
    let effect: Vec<String> =
        view.without_effect.iter().map(|field| format!("{field} is not supported yet")).collect();
    section("What has no effect", effect);
    section("Worth knowing", view.notes.clone());
    text
}

fn made(child: &ChildView, paint: Paint) -> Vec<String> {
    let (sign, tone) = if child.made { ("+", Tone::Good) } else { ("~", Tone::Warn) };
    let mut lines = vec![format!("{} {} {}", paint.tone(tone, sign), child.kind, child.name)];
    lines.extend(child.changes.iter().map(|change| format!("    {}", changed(change, paint))));
    lines
}

fn changed(change: &Change, paint: Paint) -> String {
    let Change { field, from, to } = change;
    match (from, to) {
        (None, None) => field.clone(),
        (None, Some(to)) => format!("{} {field}: {}", paint.tone(Tone::Good, "+"), short(to)),
        (Some(from), None) => format!("{} {field}: {}", paint.tone(Tone::Bad, "-"), short(from)),
        (Some(from), Some(to)) => {
            format!("{} {field}: {} → {}", paint.tone(Tone::Warn, "~"), short(from), short(to))
        }
    }
}

fn short(value: &Value) -> String {
    let text = plain(value).replace('\n', " ");
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
