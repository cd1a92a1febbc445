//! The README: every command in it is one.

use std::path::Path;

use crate::harness::read;

/// Every `forklift ...` line of the code blocks, as the words that a shell makes of it.
fn commands(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.flat_map(str::lines).filter(|line| line.starts_with("forklift ")).map(words).collect()
}

/// Words of plain letters and of single quotes; a `#` of its own begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
            continue;
        }
        for word in part.split_whitespace() {
            if word == "#" {
                return words;
            }
            words.push(word.to_owned());
        }
    }
    words
}

#[test]
fn every_command_line_of_the_readme_is_accepted() {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"));
    let commands = commands(&page);
    assert!(commands.len() > 10, "{commands:?}");
    for words in commands {
        if let Err(error) = forklift_cli::grammar().try_get_matches_from(&words) {
            panic!("{}: {error}", words.join(" "));
        }
    }
}

/// Inline `forklift project recover` and the like: the command must exist; what follows it may be a placeholder.
#[test]
fn every_command_that_the_readme_names_exists() {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"));
    let prose: String = page.split("```").step_by(2).collect();
    let mut named = 0;
    for text in prose.split('`').skip(1).step_by(2) {
        let mut words = text.split_whitespace();
        let mut grammar = forklift_cli::grammar();
        let first = words.next().unwrap_or_default();
        let group = grammar.find_subcommand(first).is_some_and(clap::Command::has_subcommands);
        if first != "forklift" && !(group && text.contains(' ')) {
            continue;
        }
        let path = if first == "forklift" { words.collect::<Vec<_>>() } else { text.split_whitespace().collect() };
        let mut path = path.into_iter();
        while grammar.has_subcommands() {
            let Some(word) = path.next() else { break };
            let found = grammar.find_subcommand(word).unwrap_or_else(|| panic!("`{text}`: there is no {word}"));
            grammar = found.clone();
        }
        for option in path.filter(|word| word.starts_with("--")) {
            let known = grammar.get_arguments().any(|argument| argument.get_long() == Some(&option[2..]));
            assert!(known, "`{text}`: there is no {option}");
        }
        named += 1;
    }
    assert!(named > 5, "{named}");
}

#[test]
fn words_are_those_of_a_shell() {
    assert_eq!(words("forklift a --seed 'b c  d' e   # 'f' g"), ["forklift", "a", "--seed", "b c  d", "e"]);
}
