//! Replaces texts that the user names, in all values, keys and comments.

use super::change::Changer;
use super::outcome::Change;

/// Applies `--replace`.
pub(super) fn apply(changer: &mut Changer<'_, '_>) {
    let pairs = changer.request.replace.clone();
    if pairs.is_empty() {
        return;
    }
    let mut is_used = vec![false; pairs.len()];
    let change =
        |text: &str| pairs.iter().fold(text.to_string(), |text, (from, to)| text.replace(from.as_str(), to));
    let sources = changer.sources;
    for document in sources.documents() {
        let yaml = &document.parsed.yaml;
        for field in &document.fields {
            if changer.is_done(document, field) {
                continue;
            }
            let nodes = if field.key == field.node { vec![field.node] } else { vec![field.key, field.node] };
            for node in nodes {
                let value = yaml.scalar(node).unwrap_or_default();
                let found: Vec<usize> = matches(&pairs, value);
                if found.is_empty() {
                    continue;
                }
                if let Some(Err(error)) = changer.edit(document).map(|edit| edit.rewrite(node, &change)) {
                    changer.refuse(document, field, error.to_string());
                }
                for number in found {
                    mark(&mut is_used, number);
                    let Some((from, to)) = pairs.get(number) else { continue };
                    changer.changes.push(Change {
                        at: document.at(field),
                        document: document.title(),
                        field: field.path.clone(),
                        from: Some(from.clone()),
                        to: Some(to.clone()),
                        reason: "a part of the value, with `--replace`".to_string(),
                    });
                }
            }
        }
    }
    comments(changer, &pairs, &mut is_used);
    for (_, to) in &pairs {
        changer.olds.note_new(to);
    }
    for ((from, _), _) in pairs.iter().zip(&is_used).filter(|(_, is_used)| !**is_used) {
        let text = format!("`--replace`: no value and no comment that stays contains `{from}`");
        changer.refusal.arguments.push(text);
    }
}

fn matches(pairs: &[(String, String)], text: &str) -> Vec<usize> {
    let found = pairs.iter().enumerate().filter(|(_, (from, _))| text.contains(from.as_str()));
    found.map(|(number, _)| number).collect()
}

fn mark(is_used: &mut [bool], number: usize) {
    if let Some(used) = is_used.get_mut(number) {
        *used = true;
    }
}

fn comments(changer: &mut Changer<'_, '_>, pairs: &[(String, String)], is_used: &mut [bool]) {
    let sources = changer.sources;
    for parsed in &sources.files {
        for place in parsed.yaml.comments() {
            let Some(text) = parsed.file.text.get(place.clone()) else { continue };
            let found = matches(pairs, text);
            if found.is_empty() {
                continue;
            }
            let new = pairs.iter().fold(text.to_string(), |text, (from, to)| text.replace(from.as_str(), to));
            if let Some(edit) = changer.edits.get_mut(parsed.number) {
                edit.set_comment(place.clone(), new);
            }
            for number in found {
                mark(is_used, number);
                let Some((from, to)) = pairs.get(number) else { continue };
                changer.changes.push(Change {
                    at: parsed.at(place.start),
                    document: "a comment".to_string(),
                    field: "a comment".to_string(),
                    from: Some(from.clone()),
                    to: Some(to.clone()),
                    reason: "with `--replace`".to_string(),
                });
            }
        }
    }
}
