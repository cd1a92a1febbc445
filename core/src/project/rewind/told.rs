//! What a host may tell the model whose turns were taken back: it remembers files as they are no more.

use super::halves::DatabaseFate;
use super::history::JournalRewind;
use crate::files::Verdict;
use crate::project::PathVerdict;

/// How many paths of each kind are named.
const NAMED: usize = 10;

pub(super) fn told(record: &JournalRewind, paths: &[PathVerdict], database: DatabaseFate) -> String {
    let turns = record.turns.join(", ");
    let mut text = match (&record.undoes, record.turns.is_empty()) {
        (Some(_), _) => format!("The rewind of turn {turns} was taken back: its changes to the files are in force again."),
        (None, false) => format!("The files were rewound: what turn {turns} changed was taken back."),
        (None, true) => "The files were rewound.".to_owned(),
    };
    let named = |verdict: fn(Verdict) -> bool| {
        let found: Vec<&str> = paths.iter().filter(|path| verdict(path.verdict)).map(|path| path.path.as_str()).collect();
        let more = found.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!found.is_empty()).then(|| format!("{}{more}", found.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ")))
    };
    for (what, paths) in [
        ("Changed back", named(|verdict| matches!(verdict, Verdict::Restore | Verdict::Create))),
        ("Removed", named(|verdict| verdict == Verdict::Delete)),
        ("Left as they are, since somebody else edited them", named(Verdict::is_kept)),
    ] {
        if let Some(paths) = paths {
            text.push_str(&format!(" {what}: {paths}."));
        }
    }
    text.push_str(match database {
        DatabaseFate::Replace => " The database was put back too.",
        DatabaseFate::Keep => " The database was left as it is.",
        DatabaseFate::None | DatabaseFate::Unchanged => "",
    });
    text.push_str(" Read a file again before you rely on what you remember of it.");
    text
}
