//! The help pages, compared with those in `tests/help`. `FORKLIFT_REWRITE=1 cargo test -p forklift-cli help` writes them.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Command;

use crate::harness::{read, write};

#[test]
fn help_pages_are_the_committed_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let mut pages = BTreeMap::new();
    let mut grammar = forklift_cli::grammar().term_width(100);
    grammar.build();
    collect("forklift", grammar, &mut pages);
    #[allow(clippy::disallowed_methods, reason = "the one flag of this test")]
    if std::env::var_os("FORKLIFT_REWRITE").is_some() {
        for (name, page) in &pages {
            write(&folder.join(name), page);
        }
    }
    let committed: Vec<String> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for name in &committed {
        assert!(pages.contains_key(name), "tests/help/{name} is the page of no command: remove it");
    }
    for (name, page) in &pages {
        assert!(committed.contains(name), "tests/help/{name} is missing: run this test with FORKLIFT_REWRITE=1");
        assert_eq!(&read(&folder.join(name)), page, "tests/help/{name} is out of date: run this test with FORKLIFT_REWRITE=1");
    }
}

fn collect(name: &str, mut command: Command, pages: &mut BTreeMap<String, String>) {
    let lines: Vec<String> = command.render_long_help().to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    pages.insert(format!("{name}.txt"), format!("{}\n", lines.join("\n").trim_end()));
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        collect(&format!("{name}-{}", inner.get_name()), inner.clone().term_width(100), pages);
    }
}
