//! Sound networks: every path passes.

use super::*;

#[tokio::test]
async fn every_path_passes_with_a_bridge_and_policies() {
    let world = World::with_policies(2, PodNetwork::Bridge).await;
    let run = world.netsurgeon("network test");
    assert_eq!(run.code, 0);
    assert_clean(&world).await;
}

#[tokio::test]
async fn every_path_passes_with_flannel_and_policies() {
    let world = World::with_policies(3, PodNetwork::Flannel).await;
    let run = world.netsurgeon("network test --rounds 2 --interval 1s");
    assert_eq!(run.code, 0);
    assert!(run.out.contains("every tested path passed (3 nodes, 2 rounds"), "{}", run.out);
    // The link of flannel is smaller than that of the nodes.
    let result = world.test("--only full-size,policy-deny,policy-allow");
    let sizes: Vec<&str> = result["paths"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|path| path["path"] == "full-size")
        .filter_map(|path| path["last"]["seen"].as_str())
        .collect();
    assert_eq!(sizes, ["1450 bytes arrived"; 6]);
    assert_clean(&world).await;
}
