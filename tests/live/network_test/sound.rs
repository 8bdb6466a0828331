//! Sound networks: every path passes.

use super::*;

#[tokio::test]
async fn every_path_passes_with_a_bridge_and_policies() {
    let world = World::with_policies(2, PodNetwork::Bridge).await;
    let run = world.netsurgeon("network test");
    assert_eq!(run.code, 0);
    assert_clean(&world).await;
}
