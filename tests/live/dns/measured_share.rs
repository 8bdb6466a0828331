//! The share that the mirror's metrics show: in `dns status`, and in the report for each stage.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::{World, ZONE};
use crate::rig::run::says;

const AT: &str = "127.0.0.90:9090";

/// Serves the query API of Prometheus (`GET /api/v1/query`), with one number for every query. Stopped on drop.
struct Metrics {
    number: Arc<Mutex<String>>,
    /// The paths of all requests.
    asked: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    fn start() -> Self {
        let (number, asked) = (Arc::new(Mutex::new("NaN".to_owned())), Arc::<Mutex<Vec<String>>>::default());
        let listener = TcpListener::bind(AT).expect("the address is free");
        let (shared, noted) = (number.clone(), asked.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(path) = answer(&stream, &shared.lock().unwrap()) else { return };
                noted.lock().unwrap().push(path);
            }
        });
        Self { number, asked, thread: Some(thread) }
    }

    fn shows(&self, number: &str) {
        number.clone_into(&mut self.number.lock().unwrap());
    }
}

/// Answers one request, and returns its path; `None` for a connection without a request.
fn answer(mut stream: &TcpStream, number: &str) -> Option<String> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let body = format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[1,"{number}"]}}]}}}}"#
    );
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    Some(path)
}

impl Drop for Metrics {
    fn drop(&mut self) {
        // Ends the thread.
        drop(TcpStream::connect(AT));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[tokio::test]
async fn share_that_metrics_show_is_in_the_status_and_in_the_report() {
    let world = World::start(&["www", "api"], &[]).await;
    let metrics = Metrics::start();
    let query = r#"mirror_share{host="{name}"}"#;
    let refused = format!("{} --share-prometheus http://{AT} --share-query up", world.planning());
    world.netsurgeon(&refused).expect(2);
    let plan = world.plan(&format!("--share-prometheus http://{AT} --share-query {query}"));
    metrics.shows("47.5");
    let first = world.netsurgeon(&format!("dns cutover --plan {plan} --stage 1 --yes -o json")).expect(0);
    let operation = first.json()["operation"].as_str().expect("an id").to_owned();
    let asked = metrics.asked.lock().unwrap().concat();
    assert!(asked.contains(&format!("www.{ZONE}")) && asked.contains(&format!("api.{ZONE}")), "{asked}");

    // Only the journal names the Prometheus: it gets no request.
    let asked = || metrics.asked.lock().unwrap().len();
    let count = asked();
    let quiet = world.netsurgeon("dns status").expect(0);
    says(&quiet.err, &["note: ", &format!("`--share-prometheus http://{AT}`")]);
    assert_eq!(asked(), count);
    metrics.shows("51");
    let measured = format!("dns status --share-prometheus http://{AT}");
    let status = world.netsurgeon(&format!("{measured} -o json")).expect(0).json();
    assert_eq!(status["names"][0]["observed"]["share"], 51.0);
    assert!(world.netsurgeon(&measured).expect(0).out.contains("50 %, observed: 51 %"));
    metrics.shows("NaN");
    let status = world.netsurgeon(&format!("{measured} -o json")).expect(0).json();
    assert_eq!(status["names"][0]["observed"]["share_error"], "no requests");

    // Without metrics the cutover continues.
    drop(metrics);
    world.netsurgeon("dns cutover --all --yes").expect(0);
    let status = world.netsurgeon(&format!("{measured} {operation} -o json")).expect(0).json();
    assert!(status["names"][0]["observed"]["share_error"].is_string(), "{status}");
    let page = world.workspace.join("report.html");
    world.netsurgeon(&format!("operation report {operation} --html {}", page.display())).expect(0);
    let text = std::fs::read_to_string(page).expect("a page");
    assert_eq!(text.matches("class=\"seen\"").count(), 1, "only the first stage had metrics");
    assert!(text.contains("<title>47.5 %</title>"));
}
