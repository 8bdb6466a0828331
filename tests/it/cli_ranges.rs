//! `netsurgeon ranges` on the snapshots of real clusters.

use insta::assert_snapshot;

use crate::program::{run, run_in, scrub, tell};

/// The part before the map, whose addresses are random.
fn overview(fixture: &str) -> String {
    let output = run(&format!("ranges show --snapshot testdata/{fixture}.snapshot.db"));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = scrub(&String::from_utf8(output.stdout).expect("text"));
    let (overview, picture) = text.split_once("\n\n1").map_or((text.as_str(), ""), |parts| parts);
    assert!(picture.contains("addresses per block: 64") && picture.contains("free, in the static band"));
    overview.to_string()
}

#[test]
fn show_lists_every_range_and_its_source() {
    assert_snapshot!(overview("objects"), @r"
    Store: snapshot testdata/objects.snapshot.db, revision N
    Era:   objects (there are ServiceCIDR or IPAddress objects, but no RangeAllocation `serviceips`)

    RANGE          CAPACITY   USED   FREE    STATIC BAND   SOURCE
    10.96.0.0/16   65534      25     65509   4 of 256      ServiceCIDR kubernetes
    30000-32767    2768       6      2762    1 of 86       RangeAllocation servicenodeports
    ");
    assert_snapshot!(overview("dualwrite"), @r"
    Store: snapshot testdata/dualwrite.snapshot.db, revision N
    Era:   dual-write (there are IPAddress objects, and the RangeAllocation is up to date with them)

    RANGE          CAPACITY   USED   FREE    STATIC BAND   SOURCE
    10.96.0.0/16   65534      25     65509   4 of 256      ServiceCIDR kubernetes, RangeAllocation serviceips
    30000-32767    2768       6      2762    1 of 86       RangeAllocation servicenodeports
    ");
    assert_snapshot!(overview("bitmap"), @r"
    Store: snapshot testdata/bitmap.snapshot.db, revision N
    Era:   bitmap (there are no ServiceCIDR objects and no IPAddress objects)

    RANGE          CAPACITY   USED   FREE    STATIC BAND   SOURCE
    10.96.0.0/16   65534      25     65509   4 of 256      RangeAllocation serviceips
    30000-32767    2768       6      2762    1 of 86       RangeAllocation servicenodeports
    ");
    assert_snapshot!(overview("dualstack"), @r"
    Store: snapshot testdata/dualstack.snapshot.db, revision N
    Era:   objects (there are ServiceCIDR or IPAddress objects, but no RangeAllocation `serviceips`)

    RANGE              CAPACITY   USED   FREE    STATIC BAND   SOURCE
    10.96.0.0/16       65534      30     65504   4 of 256      ServiceCIDR kubernetes
    fd00:10:96::/112   65535      5      65530   0 of 256      ServiceCIDR kubernetes
    30000-32767        2768       6      2762    1 of 86       RangeAllocation servicenodeports
    ");
}

#[test]
fn show_prints_json() {
    assert_snapshot!(tell("ranges show --snapshot testdata/json.snapshot.db -o json"), @r#"
    --- stdout
    {
      "version": 1,
      "store": "snapshot testdata/json.snapshot.db",
      "revision": N,
      "era": "objects",
      "era_because": "there are ServiceCIDR or IPAddress objects, but no RangeAllocation `serviceips`",
      "ranges": [
        {
          "range": "10.96.0.0/16",
          "sources": [
            "ServiceCIDR kubernetes"
          ],
          "capacity": 65534,
          "used": 25,
          "free": 65509,
          "static_band": 256,
          "static_band_used": 4
        }
      ],
      "node_ports": {
        "range": "30000-32767",
        "capacity": 2768,
        "used": 6,
        "free": 2762,
        "static_band": 86,
        "static_band_used": 1
      }
    }
    --- exit status 0
    "#);
}

#[test]
fn svg_is_complete_and_replaces_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("r.svg"), "old").expect("a file");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/dualstack.snapshot.db");
    let output = run_in(folder.path(), &format!("ranges show --snapshot {fixture} --svg r.svg"), b"");
    assert!(output.status.success(), "{output:?}");
    let svg = std::fs::read_to_string(folder.path().join("r.svg")).expect("a file");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for text in ["10.96.0.0/16", "fd00:10:96::/112", "Node ports 30000-32767", "static band"] {
        assert!(svg.contains(text), "{text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "no temporary file is left");
    let output = run_in(folder.path(), &format!("ranges show --snapshot {fixture} --svg no/r.svg"), b"");
    assert_snapshot!(crate::program::told(&output), @r"
    --- stderr
    error: cannot write `no/r.svg`: No such file or directory (os error 2)
    hint: the folder must exist, and you must be allowed to write to it
    --- exit status 1
    ");
}

#[test]
fn check_of_healthy_cluster_has_no_findings() {
    for fixture in ["objects", "dualwrite", "bitmap", "dualstack", "json"] {
        let output = run(&format!("ranges check --snapshot testdata/{fixture}.snapshot.db"));
        assert!(output.status.success() && output.stdout.is_empty(), "{fixture}: {output:?}");
    }
    assert_snapshot!(tell("ranges check --snapshot testdata/dualwrite.snapshot.db"), @r"
    --- stderr
    snapshot testdata/dualwrite.snapshot.db, revision N, era dual-write: 29 Services checked, 0 errors, 0 warnings
    --- exit status 0
    ");
    assert_snapshot!(tell("ranges check --snapshot testdata/objects.snapshot.db -o json"), @r#"
    --- stdout
    {
      "version": 1,
      "era": "objects",
      "era_because": "there are ServiceCIDR or IPAddress objects, but no RangeAllocation `serviceips`",
      "revision": N,
      "findings": []
    }
    --- stderr
    snapshot testdata/objects.snapshot.db, revision N, era objects: 29 Services checked, 0 errors, 0 warnings
    --- exit status 0
    "#);
}
