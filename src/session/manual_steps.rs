//! Manual steps that the operator confirms by name.

use super::Failure;

/// Fails if a confirmed name is not a manual step. `open` contains the manual steps that the hint lists.
pub fn confirm_only(confirm: &[String], known: &[&str], open: &[String]) -> Result<(), Failure> {
    let unknown = confirm.iter().find(|name| !known.contains(&name.as_str()));
    let Some(name) = unknown else { return Ok(()) };
    let failure = Failure::usage(format!("`--confirm {name}`: no manual step has this name"));
    if open.is_empty() {
        return Err(failure.hint("no manual step is open: omit `--confirm`"));
    }
    let list = open.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    Err(failure.hint(format!("open manual steps: {list}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::ExitKind;

    #[test]
    fn unknown_manual_step_is_refused_with_the_open_ones() {
        let open = ["flags".to_string(), "soak".to_string()];
        let known = ["flags", "soak", "certificates"];
        let refused = |names: &[&str], open: &[String]| {
            let confirm: Vec<String> = names.iter().map(ToString::to_string).collect();
            confirm_only(&confirm, &known, open).err()
        };
        assert!(refused(&[], &open).is_none());
        assert!(refused(&["flags", "certificates"], &open).is_none());
        let failure = refused(&["flags", "flgas"], &open).expect("a refusal");
        assert_eq!(failure.kind, ExitKind::Usage);
        assert!(failure.error.to_string().contains("`--confirm flgas`"), "{}", failure.error);
        assert_eq!(failure.hints, ["open manual steps: `flags`, `soak`"]);
        let failure = refused(&["close-range"], &[]).expect("a refusal");
        assert_eq!(failure.hints, ["no manual step is open: omit `--confirm`"]);
    }
}
