//! Random histories against the naive model: after every event the world is where the surviving operations alone would
//! have brought it.

mod common;

use common::{Op, Os};
use proptest::prelude::*;
use speculation::{Access, Options, Process};

#[derive(Clone, Copy, Debug)]
enum Event {
    Do(u32, Op),
    Commit(usize),
    Fail(usize),
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let object = 0u8..3;
    prop_oneof![
        3 => Just(Op::Speculate(Access::ReadOnly)),
        1 => Just(Op::Speculate(Access::Mutating)),
        1 => Just(Op::Lightweight),
        1 => (0usize..20).prop_map(Op::Attach),
        4 => object.clone().prop_map(Op::Write),
        3 => object.clone().prop_map(Op::Read),
        3 => object.clone().prop_map(Op::Consume),
        3 => (object.clone(), object).prop_map(|(from, to)| Op::Move(from, to)),
        4 => Just(Op::Output),
        2 => (1u32..6).prop_map(Op::Fork),
        1 => Just(Op::Exit),
        2 => (1u32..6).prop_map(Op::Wait),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        12 => (1u32..6, op()).prop_map(|(process, op)| Event::Do(process, op)),
        3 => (0usize..40).prop_map(Event::Commit),
        2 => (0usize..40).prop_map(Event::Fail),
        1 => (0u64..800).prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 1..120)
}

fn run(os: &mut Os, event: Event) {
    let count = os.guesses.len().max(1);
    match event {
        Event::Do(process, op) => drop(os.perform(Process(process), op)),
        Event::Commit(spec) => drop(os.commit(spec % count)),
        Event::Fail(spec) => drop(os.fail(spec % count)),
        Event::Wait(ms) => os.now_ms += ms,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn is_where_the_survivors_would_be(events in events(), share in any::<bool>(), last in any::<u64>()) {
        let options = Options { share_checkpoints: share, ..Options::default() };
        let mut os = Os::new(3, options);
        for event in events {
            run(&mut os, event);
            os.check();
        }
        for spec in 0..os.guesses.len() {
            if last >> (spec % 64) & 1 == 0 || !os.fail(spec) {
                os.commit(spec);
            }
            os.check();
        }
        prop_assert_eq!(os.open(), 0);
    }
}
