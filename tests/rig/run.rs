//! The program, run to its end.

use std::process::Command;

use serde_json::Value;

/// A run of the program.
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        self
    }
}

/// Whether one line of a text has all these facts: names, addresses, commands and numbers, which a reworded message keeps.
pub fn has_line(text: &str, facts: &[&str]) -> bool {
    text.split('\n').any(|line| facts.iter().all(|fact| line.contains(fact)))
}

/// Asserts that one line of a text has all these facts.
#[track_caller]
pub fn says(text: &str, facts: &[&str]) {
    assert!(has_line(text, facts), "no line has {facts:?}: {text}");
}

/// Runs the program to its end, and shows what it prints.
pub fn run(words: &str, mut command: Command) -> Run {
    let output = command.output().expect("netsurgeon runs");
    let run = Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    println!("$ netsurgeon {words}\n{}{}[{}]", run.out, run.err, run.code);
    run
}
