//! `windows`: whether Nodes run Windows.

use k8s_openapi::api::core::v1::Node;

use super::Renumber;
use crate::kube_api::accessors::{is_windows, name};
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "windows",
    why: "renumbering is not tested with kube-proxy on Windows",
    needs: &[Source::Api],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Renumber) -> Read<Judged> {
    let judged = judge(input.read.nodes().await?, input.options.accept_gap);
    Ok(input.only_grows().await.unwrap_or(judged))
}

/// Checks for Windows nodes, because renumbering is not tested with kube-proxy on Windows. `accepted`: whether `--accept-gap` is
/// given.
fn judge(nodes: &[Node], accepted: bool) -> Judged {
    let found: Vec<String> =
        nodes.iter().filter(|node| is_windows(node)).map(|node| format!("`{}`", name(node))).collect();
    if found.is_empty() {
        return Judged::pass(format!("no Node runs Windows ({})", counted(nodes.len(), "Node", "Nodes")));
    }
    let seen = format!(
        "{}: holding old addresses is not tested with kube-proxy on Windows (winkernel)",
        first_few(&found)
    );
    let remedy = "drain and remove these nodes for the renumbering, or accept that connections of their Pods may fail: `--accept-gap`";
    if accepted { Judged::warn(seen, remedy) } else { Judged::fail(seen, remedy) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::preflight::Verdict;

    fn node(object: Value) -> Node {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn windows_nodes_are_recognized_by_label_and_node_info() {
        let plain = node(json!({"metadata": {"name": "a", "labels": {"kubernetes.io/os": "linux"}}}));
        let labelled = node(json!({"metadata": {"name": "b", "labels": {"kubernetes.io/os": "windows"}}}));
        let said =
            node(json!({"metadata": {"name": "c"}, "status": {"nodeInfo": {"operatingSystem": "windows"}}}));
        assert_eq!(judge(std::slice::from_ref(&plain), false).verdict, Verdict::Pass);
        assert_eq!(judge(&[plain.clone(), labelled], false).verdict, Verdict::Fail);
        assert_eq!(judge(&[plain, said], true).verdict, Verdict::Warn);
    }
}
