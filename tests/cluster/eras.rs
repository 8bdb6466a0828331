//! The rig itself
use super::rig::cluster::{Cluster, ClusterOptions, Era};
use serde_json::json;

#[tokio::test]
async fn objects() {
    let begin = std::time::Instant::now();
    let cluster = Cluster::start(ClusterOptions::new(Era::Objects)).await;
    println!("start {:?}", begin.elapsed());
    let service = cluster.api.create_service("default", "web", json!({"ports": [{"port": 80}]})).await;
    println!("{service:#}");
    println!("{:#?}", cluster.etcd.keys("/registry/").await);
}
