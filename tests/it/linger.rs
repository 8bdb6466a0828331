//! During a rollback the new addresses stay for a while, for clients that resolved a name just before. They are removed when
//! every Service has its old address again, and the DNS records that clients cached have expired.

use netsurgeon::operation::{Event, Observer};
use netsurgeon::survey::Era;

use crate::harness::{Bench, CASES};

/// The kinds of the steps that were done, in their order.
#[derive(Default)]
struct Order(Vec<String>);

impl Observer for Order {
    fn event(&mut self, event: Event<'_>) {
        if let Event::StepDone { step } = event {
            self.0.push(step.id.kind().to_owned());
        }
    }
}

impl Order {
    fn places(&self, word: &str) -> Vec<usize> {
        let places = self.0.iter().enumerate().filter(|(_, kind)| *kind == word);
        places.map(|(place, _)| place).collect()
    }

    /// Every step that removes a new address, or prepares it.
    fn leaving(&self) -> Vec<usize> {
        ["prewarm", "give-address", "make-shadow"].iter().flat_map(|word| self.places(word)).collect()
    }
}

async fn way_back(bench: &Bench, until: Option<usize>) -> Order {
    let store = bench.fresh().await;
    bench.run(&store, until).await.expect("a run");
    let mut order = Order::default();
    bench.unwind_watched(&store, &mut order).await.expect("a rollback");
    bench.assert_as_at_the_start(&store, "undone").await;
    order
}

#[tokio::test]
async fn new_addresses_stay_until_every_service_has_moved_back() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        let order = way_back(&bench, bench.no_return()).await;
        let (flips, lingers, leaving) = (order.places("flip"), order.places("linger"), order.leaving());
        assert_eq!(flips.len(), bench.plan.work.moves.len(), "{}", bench.name);
        if bench.plan.work.era == Era::Bitmap {
            assert_eq!(
                lingers.len(),
                bench.plan.work.batches().len(),
                "{}: each batch by itself",
                bench.name
            );
            assert!(flips.first() < lingers.first() && lingers.first() < leaving.iter().min());
        } else {
            assert_eq!(lingers.len(), 1, "{}: {:?}", bench.name, order.0);
            assert!(flips.iter().max() < lingers.first(), "{}: {:?}", bench.name, order.0);
            assert!(lingers.first() < leaving.iter().min(), "{}: {:?}", bench.name, order.0);
        }
    }
}

/// Before anything has moved, no client knows a new address.
#[tokio::test]
async fn rollback_does_not_linger_when_nothing_moved() {
    for (fixture, to) in CASES {
        let bench = Bench::of(fixture, to).await;
        let order = way_back(&bench, bench.plan.work.flip_stage(0)).await;
        assert!(!order.leaving().is_empty(), "{}: prepared addresses are removed", bench.name);
        assert_eq!(order.places("linger"), Vec::<usize>::new(), "{}", bench.name);
    }
}
