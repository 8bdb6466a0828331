//! `operation report` of a renumbering that ran on a real cluster and was retired, as a browser renders it.

use std::path::Path;
use std::process::Command;

use super::rig::cluster::Era;
use super::rig::proxy::ProxyMode;
use super::serving_cluster::{SERVICES, Serving};

/// The browser's view of a page, and its complaints.
struct Seen {
    dom: String,
    complaints: Vec<String>,
}

fn browse(page: &Path, profile: &Path) -> Seen {
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--enable-logging=stderr", "--window-size=1280,2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium runs: `make rig` installs it");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{err}");
    let complaints = err.lines().filter(|line| line.contains("CONSOLE")).map(str::to_string).collect();
    Seen { dom: String::from_utf8(output.stdout).expect("UTF-8"), complaints }
}

/// The browser reports a faulty page: otherwise a page without complaints would prove nothing.
fn assert_that_faults_are_seen(folder: &Path) {
    let page = folder.join("faulty.html");
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'\">";
    std::fs::write(&page, format!("<!DOCTYPE html>{policy}<p>x<script>alert(1)</script>")).expect("a file");
    let seen = browse(&page, &folder.join("profile"));
    assert!(!seen.complaints.is_empty() && seen.dom.contains("<p>x"), "{}", seen.dom);
}

/// A page without the revision of the cluster: Leases are renewed between one page and the next.
fn without_revision(page: &Path) -> String {
    let text = std::fs::read_to_string(page).expect("a page");
    let parts: Vec<&str> = text.split(" at revision ").collect();
    assert!(parts.len() > 1, "no revision in {text}");
    let rest = parts[1..].iter().map(|part| part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    parts[0].to_string() + &rest.collect::<String>()
}

#[tokio::test]
async fn report_renders_in_a_browser_without_complaints() {
    let mut serving = Serving::start(Era::Objects, ProxyMode::Nftables).await;
    let operation = serving.apply("").await;
    let confirmed = "--confirm soak --confirm certificates-after";
    serving.netsurgeon(&format!("renumber retire --without-evidence --yes {confirmed}")).expect(0);
    let folder = serving.cluster.directory().to_path_buf();
    let file = folder.join("report.html");
    serving.netsurgeon(&format!("operation report {operation} --html {}", file.display())).expect(0);
    let again = folder.join("again.html");
    serving.netsurgeon(&format!("operation report {operation} --html {}", again.display())).expect(0);
    let (page, same) = (without_revision(&file), without_revision(&again));
    assert!(page == same, "the same journal, the same page");

    assert_that_faults_are_seen(&folder);
    let seen = browse(&file, &folder.join("profile"));
    assert_eq!(seen.complaints, Vec::<String>::new());
    let dom = &seen.dom;
    for (name, old, new) in [
        ("web", "10.96.0.5", "10.200.0.5"),
        ("web-6", "10.96.1.7", "10.200.1.7"),
        ("kubernetes", "10.96.0.1", "10.200.0.1"),
    ] {
        let row = format!("</span>{name}</td><td><code>{old}</code></td><td><code>{new}</code></td>");
        assert!(dom.contains(&row), "{row}");
    }
    assert_eq!(dom.matches(">moved, old retired<").count(), SERVICES + 2);
    assert!(dom.contains(&format!("<h1>{operation}</h1>")) && dom.contains(">done</span>"));
    assert!(dom.contains("<rect class=\"flip\"") && dom.contains("<rect class=\"retire\""), "the time line");
    for name in ["snapshot", "certificates", "flags", "soak", "certificates-after"] {
        assert!(dom.contains(&format!("<td><code>{name}</code></td>")), "{name}");
    }
    assert!(dom.contains("None: every Service matches the journal"));
    // Kept for a person to view.
    std::fs::copy(&file, Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-live.html")).expect("a copy");
}
