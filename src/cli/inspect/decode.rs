//! `netsurgeon inspect decode`: shows one stored value from a file or from stdin, for example from `etcdctl get`.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::view::{self, Items};
use crate::cli::output::Format;
use crate::cli::{Context, Outcome};
use crate::session::Failure;

/// Show a stored value from a file or from stdin as YAML or JSON
///
/// Accepts the output of `etcdctl get --print-value-only`. With `--input base64`, accepts one `value` from the output of `etcdctl
/// get -w json`. Does not show the content of a Secret.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  etcdctl get /registry/services/specs/default/kubernetes --print-value-only \\
      | netsurgeon inspect decode
  etcdctl get /registry/ranges/serviceips -w json | jq -r '.kvs[0].value' |
    netsurgeon inspect decode --input base64")]
pub struct DecodeArgs {
    /// The file, or `-` for stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Encoding of the value
    #[arg(long, value_enum, default_value = "raw", value_name = "FORM")]
    input: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// As stored
    Raw,
    /// Base64
    Base64,
    /// Hexadecimal
    Hex,
}

/// The output of `inspect decode -o json`.
#[derive(Serialize)]
struct DecodedOutput {
    version: u8,
    encoding: &'static str,
    size: usize,
    object: serde_json::Value,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &DecodeArgs) -> Result<Outcome, Failure> {
    let value = value(args.input, read(&args.file)?)?;
    let object = decode(&value)?;
    if context.output.format() == Format::Table {
        context.output.yaml(&object)?;
    } else {
        let shown = DecodedOutput { version: 1, encoding: view::encoding(&value), size: value.len(), object };
        context.output.data(&shown, |_| String::new())?;
    }
    Ok(Outcome::Done)
}

/// Decodes a value. etcdctl adds a newline after a value, so if decoding fails, this function retries without the newline.
fn decode(value: &[u8]) -> Result<serde_json::Value, Failure> {
    let outcome = view::of(value, Items::Together);
    match (outcome, value.strip_suffix(b"\n")) {
        (Err(_), Some(shorter)) => Ok(view::of(shorter, Items::Together)?),
        (outcome, _) => Ok(outcome?),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let outcome = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut content).map(drop)
    } else {
        std::fs::read(file).map(|bytes| content = bytes)
    };
    outcome.map_err(|error| Failure::refused(format!("cannot read `{}`: {error}", file.display())))?;
    Ok(content)
}

fn value(form: Form, content: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if form == Form::Raw {
        return Ok(content);
    }
    let digits: Vec<u8> = content.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes = match form {
        Form::Hex => hex(&digits),
        _ => BASE64_STANDARD.decode(&digits).ok(),
    };
    let name = if form == Form::Hex { "hexadecimal" } else { "base64" };
    bytes.ok_or_else(|| Failure::refused(format!("the input is not {name}")).hint("see `--input`"))
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
