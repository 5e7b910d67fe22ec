use std::collections::BTreeMap;

use super::*;
use crate::histogram::Delays;
use crate::phases::Flooded;
use crate::proc::Memory;
use crate::results::{
    Acp, Bindings, Costs, Flood, Length, Machine, Measured, Overload, Push, PushRun, Quiet, Ran, Scrape,
    SoakSample, Stalled, Start, Streams, Unary,
};

fn delays(p50_ms: f64) -> Delays {
    let ms = |times: f64| p50_ms * times;
    Delays {
        count: 1000,
        mean_ms: ms(1.1),
        p50_ms,
        p90_ms: ms(2.0),
        p99_ms: ms(4.0),
        p999_ms: ms(8.0),
        max_ms: ms(9.0),
    }
}

fn memory(anonymous_kb: u64) -> Memory {
    Memory { anonymous_kb, resident_kb: anonymous_kb + 8_000, peak_kb: anonymous_kb + 9_000 }
}

fn counted(count: u64, p50_ms: f64) -> Delays {
    Delays { count, ..delays(p50_ms) }
}

fn streams(number: u64, cpu: f64) -> Streams {
    Streams {
        streams: number,
        rate: 10,
        size: 24,
        window_s: 15.0,
        expected: number * 150,
        delivered: number * 150,
        frames: number * 140,
        cpu_us_per_delta: cpu,
        delays: counted(number * 150, 0.4),
        open_files: number * 2 + 20,
        completed: number,
        equal: number,
        kept: number.min(32),
        kept_equal: number.min(32),
        live: memory(10_000 + number * 20),
        costs: Costs { window_s: 15.0, server_ms: 100.0, driver_ms: 30.0, stand_in_ms: 15.0 },
        ..Streams::default()
    }
}

fn unary(per_second: f64) -> Unary {
    Unary {
        clients: 32,
        turns: 1000,
        per_second,
        cpu_ms_per_turn: 0.7,
        delays: delays(20.0),
        ..Unary::default()
    }
}

fn length(deltas: u64, cpu: f64) -> Length {
    let one_wave = deltas == 10_000;
    Length {
        deltas,
        streams: 10,
        waves: 10_000 / deltas,
        rate: 200,
        cpu_us_per_delta: cpu,
        first_tenth_us: one_wave.then_some(cpu),
        last_tenth_us: one_wave.then_some(cpu * 1.1),
        delays: delays(0.5),
        completed: 100_000 / deltas,
        equal: 100_000 / deltas,
        ..Length::default()
    }
}

fn push_run(dead: u64, p50_ms: f64) -> PushRun {
    PushRun {
        tasks: 100,
        webhooks: 10_000,
        dead,
        expected: 9_900,
        delivered: 9_900,
        repeated: 0,
        retried: dead * 4,
        lag: counted(9_900, p50_ms),
        costs: Costs { window_s: 20.0, server_ms: 8_000.0, driver_ms: 2_000.0, stand_in_ms: 100.0 },
    }
}

fn results() -> Results {
    let quiet = |turns: f64, deltas: f64| Quiet {
        turns: delays(turns),
        wrong: 0,
        deltas: delays(deltas),
        expected: 1000,
        streams: 8,
        whole: 8,
    };
    let sent = |sent: u64, refused: u64| Flooded { seconds: 12.0, sent, refused, broken: 0 };
    let flood = Flood {
        calm: quiet(5.0, 0.5),
        flooded: quiet(8.0, 1.2),
        flood: sent(12_000, 10),
        rated_calm: quiet(4.0, 0.4),
        rated: quiet(6.0, 0.6),
        rated_flood: sent(60_000, 58_000),
    };
    let ran = |seconds: f64, commit: &str| Ran {
        seconds,
        date: "2026-11-15".to_owned(),
        commit: commit.to_owned(),
        load: "0.50".to_owned(),
    };
    let soak = |minute: u32| SoakSample {
        at_s: f64::from(minute) * 60.0,
        streams: 200,
        memory: memory(30_000),
        open_files: 250,
        database_bytes: 9 << 20,
        turns: u64::from(minute) * 1200,
        wrong: 0,
        delays: delays(0.6),
    };
    Results {
        date: "2026-11-15".to_owned(),
        commit: "abc1234".to_owned(),
        machine: Machine { cores: 2, memory_kb: 8 << 20, load: "0.10".to_owned() },
        quick: false,
        full: true,
        longshore: Measured {
            start: Some(Start { card_ms: vec![40.0, 41.0, 39.0], rest: memory(9_000) }),
            unary: vec![unary(1200.0)],
            streams: vec![streams(10, 50.0), streams(32, 45.0), streams(1000, 48.0)],
            fast: Some(Streams { rate: 100, ..streams(32, 20.0) }),
            v03: Some(streams(32, 47.0)),
            length: vec![length(100, 60.0), length(10_000, 50.0)],
            acp: Some(Acp {
                http: vec![streams(32, 60.0), streams(32, 50.0), streams(32, 49.0)],
                acp: vec![streams(32, 55.0), streams(32, 54.0), streams(32, 90.0)],
                sessions: Some(streams(200, 52.0)),
            }),
            bindings: Some(Bindings {
                json_rpc: vec![streams(32, 50.0), streams(32, 52.0), streams(32, 49.0)],
                rest: vec![streams(32, 48.0), streams(32, 48.0), streams(32, 48.0)],
                websocket: vec![streams(32, 44.0), streams(32, 45.0), streams(32, 90.0)],
                grpc: vec![streams(32, 60.0), streams(32, 61.0), streams(32, 62.0)],
            }),
            stalled: Some(Stalled {
                readers: 1000,
                healthy: 32,
                whole: 96,
                stuck: 1000,
                kernel_bytes: 40 << 20,
                before: vec![delays(0.5), delays(0.55)],
                during: counted(32 * 600, 0.6),
                empty: memory(20_000),
                filled: memory(90_000),
                later: memory(90_400),
                seconds: 60.0,
                anonymous_kb: vec![90_000, 90_400],
            }),
            overload: Some(Overload {
                capacity_per_second: 1200.0,
                offered_per_second: 6000.0,
                seconds: 60.0,
                offered: 360_000,
                accepted: 70_000,
                refused: BTreeMap::from([("429 -31056 TOO_MANY_REQUESTS".to_owned(), 290_000)]),
                untyped: BTreeMap::new(),
                completed: 70_000,
                equal: 70_000,
                lost: BTreeMap::new(),
                without_retry_after: 0,
                settled_s: 21.5,
                later_s: 60.0,
                before_per_second: 1_500.0,
                after_per_second: 1_480.0,
                before: delays(5.0),
                after: delays(5.1),
                memory_before: memory(30_000),
                memory_after: memory(31_000),
            }),
            flood: vec![flood.clone(), flood],
            push: Some(Push {
                without: vec![push_run(0, 20.0), push_run(0, 21.0)],
                with: vec![push_run(100, 22.0), push_run(100, 20.5)],
            }),
            scrape: Some(Scrape {
                per_second: 10.0,
                bytes: 9000,
                delays: delays(0.4),
                without: Costs { window_s: 15.0, server_ms: 750.0, ..Costs::default() },
                with: Costs { window_s: 15.0, server_ms: 800.0, ..Costs::default() },
                cpu_ms: 0.31,
            }),
            soak: (0..=20).map(soak).collect(),
            failed: BTreeMap::new(),
            ran: BTreeMap::from([
                ("unary".to_owned(), ran(45.0, "abc1234")),
                ("soak".to_owned(), ran(1205.0, "abc0000")),
            ]),
        },
        peer: Some(Measured {
            start: Some(Start { card_ms: vec![1700.0], rest: memory(80_000) }),
            unary: vec![unary(20.0)],
            streams: vec![Streams {
                delays: delays(900.0),
                delivered: 1200,
                completed: 0,
                equal: 0,
                ..streams(32, 12_000.0)
            }],
            fast: Some(Streams { rate: 100, delivered: 1050, ..streams(32, 14_000.0) }),
            length: vec![length(100, 9_000.0), length(1_000, 20_000.0)],
            failed: BTreeMap::from([("soak".to_owned(), "it\nended".to_owned())]),
            ..Measured::default()
        }),
        instructions: BTreeMap::from([("encode-v1".to_owned(), 2_345.0)]),
    }
}

#[test]
fn the_page_contains_all_results() {
    let reasons = Reasons::from([("flood-deltas".to_owned(), "Two cores are few.\n".to_owned())]);
    let (text, _) = page(&results(), &reasons);
    insta::assert_snapshot!(text);
}

#[test]
fn the_plots_are_drawn() {
    let (_, plots) = page(&results(), &Reasons::new());
    let names: Vec<_> = plots.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["delay.svg", "cpu-streams.svg", "cpu-length.svg", "memory.svg"]);
    insta::assert_snapshot!(plots[2].1);
}

#[test]
fn the_table_is_printed_for_terminals() {
    insta::assert_snapshot!(summary(&results()).join("\n"));
}

#[test]
fn an_empty_run_gives_a_short_page() {
    let (text, plots) = page(&Results { quick: true, ..Results::default() }, &Reasons::new());
    assert!(text.contains("no measurement") && plots.len() == 4);
    assert_eq!(summary(&Results::default()), [""; 0]);
}

#[test]
fn a_missed_budget_is_listed_with_its_reason() {
    let mut results = results();
    results.longshore.unary[0].per_second = 100.0;
    let row = &rows(&results)[0];
    assert_eq!((row.ratio.as_str(), row.met), ("5.00×", Some(false)));
    let (text, _) = page(&results, &Reasons::new());
    assert!(
        text.contains("- **unary turns per second**: 100; the budget is ≥ 50×. The reason is not known yet.")
    );
    let reasons = Reasons::from([("unary".to_owned(), "Because.".to_owned())]);
    assert!(page(&results, &reasons).0.contains("the budget is ≥ 50×. Because."));
    // Without a peer there is nothing to compare.
    results.peer = None;
    let row = &rows(&results)[0];
    assert_eq!((row.peer.as_str(), row.ratio.as_str(), row.met), ("–", "–", None));
}

#[test]
fn unmeasured_rows_miss_their_budgets() {
    let missed = |change: fn(&mut Results)| {
        let mut results = results();
        change(&mut results);
        let rows = rows(&results).into_iter().filter(|row| row.key != "flood-deltas");
        rows.filter(|row| row.met == Some(false)).map(|row| (row.key, row.longshore)).collect::<Vec<_>>()
    };
    let none = |key| (key, "not measured".to_owned());
    assert_eq!(missed(|_| ()), []);
    assert_eq!(
        missed(|results| results.longshore.streams.truncate(2)),
        ["cpu-1000", "memory-stream", "complete-1000", "delay-1000"].map(none)
    );
    assert_eq!(
        missed(|results| results.longshore.stalled = None),
        ["stalled-memory", "stalled-delay"].map(none)
    );
    assert_eq!(missed(|results| results.longshore.length[1].last_tenth_us = None), [none("cpu-within")]);
    assert_eq!(missed(|results| results.longshore.acp = None), ["acp-cpu", "acp-sessions"].map(none));
    assert_eq!(missed(|results| results.longshore.bindings = None), ["cpu-grpc", "cpu-websocket"].map(none));
    assert_eq!(missed(|results| results.longshore.push = None), [none("push-lag")]);
    let peer_failed: fn(&mut Results) = |results| results.peer.as_mut().unwrap().unary.clear();
    assert_eq!(missed(peer_failed), [("unary", "1 200".to_owned())]);
    let partly: fn(&mut Results) = |results| {
        results.longshore.failed.insert("soak".to_owned(), "it ended".to_owned());
    };
    assert_eq!(missed(partly).len(), 4);
    // A run of some phases does not miss the others.
    assert_eq!(missed(|results| (results.full, results.longshore.stalled) = (false, None)), []);
    let mut without = results();
    without.longshore = Measured::default();
    let text = page(&without, &Reasons::new()).0;
    assert!(text.contains("- **soak: turns**: not measured; the budget is all right."), "{text}");
}

#[test]
fn every_row_with_a_budget_is_in_the_list() {
    let rows = rows(&results());
    let found: Vec<_> =
        rows.iter().filter(|row| row.met.is_some()).map(|row| (row.key, row.budget.as_str())).collect();
    assert_eq!(found, asked::ASKED.map(|(key, _, budget)| (key, budget)));
}

#[test]
fn phases_of_another_run_are_named_at_the_top() {
    let head = |results: &Results| {
        let (text, _) = page(results, &Reasons::new());
        text.split("| what |").next().unwrap().to_owned()
    };
    let mut results = results();
    let note = "**Some phases are from another run:** `soak` of Longshore (2026-11-15, commit abc0000).";
    assert!(head(&results).contains(note), "{}", head(&results));
    results.longshore.ran.get_mut("soak").unwrap().commit.clone_from(&results.commit);
    assert!(!head(&results).contains("Some phases"));
}

#[test]
fn results_are_read_back_as_they_were_stored() {
    let results = results();
    let text = serde_json::to_string(&results).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
}

#[test]
fn growth_misses_the_budget() {
    let key =
        |results: &Results, key: &str| rows(results).into_iter().find(|row| row.key == key).unwrap().met;
    let mut results = results();
    for flat in
        ["soak-memory", "soak-files", "soak-database", "soak-turns", "stalled-memory", "stalled-delay"]
    {
        assert_eq!(key(&results, flat), Some(true), "{flat}");
    }
    for (number, sample) in results.longshore.soak.iter_mut().enumerate() {
        sample.database_bytes += u64::try_from(number).unwrap() << 20;
    }
    results.longshore.soak.last_mut().unwrap().wrong = 1;
    let stalled = results.longshore.stalled.as_mut().unwrap();
    (stalled.during, stalled.stuck) = (counted(32 * 600, 1.5), 999);
    for missed in ["soak-database", "soak-turns", "stalled-memory", "stalled-delay"] {
        assert_eq!(key(&results, missed), Some(false), "{missed}");
    }
    let overload = results.longshore.overload.as_mut().unwrap();
    (overload.equal, overload.without_retry_after) = (69_999, 1);
    assert_eq!(key(&results, "cpu-within"), Some(true));
    results.longshore.length[1].last_tenth_us = Some(61.0);
    assert_eq!((key(&results, "cpu-length"), key(&results, "cpu-within")), (Some(true), Some(false)));
    assert_eq!(key(&results, "overload-taken"), Some(false));
    assert_eq!(key(&results, "overload-refused"), Some(false));
}

/// The keys of the rows whose verdict changes with the results.
fn missed_by(change: impl FnOnce(&mut Results)) -> Vec<&'static str> {
    let mut results = results();
    let before = rows(&results);
    change(&mut results);
    let pairs = before.into_iter().zip(rows(&results));
    pairs.filter(|(then, now)| then.met != now.met).map(|(then, _)| then.key).collect()
}

fn point(results: &mut Results, streams: u64) -> &mut Streams {
    results.longshore.streams.iter_mut().find(|point| point.streams == streams).unwrap()
}

#[test]
fn missing_data_meets_no_budget() {
    let nothing = Delays::default();
    let at_32 = ["cpu", "delay-p50", "delay-p99"];
    assert_eq!(missed_by(|results| point(results, 32).delays = nothing), at_32);
    assert_eq!(missed_by(|results| point(results, 32).delivered = 4_000), at_32);
    assert_eq!(missed_by(|results| point(results, 32).equal = 31), at_32);
    assert_eq!(missed_by(|results| point(results, 32).kept_equal = 31), at_32);
    assert_eq!(
        missed_by(|results| point(results, 1000).equal = 999),
        ["cpu-1000", "memory-stream", "complete-1000", "delay-1000"]
    );
    assert_eq!(missed_by(|results| point(results, 1000).open_files = 40), ["memory-stream"]);
    let peer = |results: &mut Results, delivered| {
        results.peer.as_mut().unwrap().streams[0].delivered = delivered;
    };
    assert_eq!(missed_by(|results| peer(results, 1)), ["cpu"]);
    assert_eq!(missed_by(|results| peer(results, 0)), ["cpu"]);
    assert_eq!(missed_by(|results| results.longshore.unary[0].wrong = 1), ["unary"]);
    assert_eq!(missed_by(|results| results.peer.as_mut().unwrap().unary[0].wrong = 1000), ["unary"]);
    assert_eq!(missed_by(|results| results.longshore.length[1].equal = 9), ["cpu-length", "cpu-within"]);
    assert_eq!(missed_by(|results| results.longshore.length[0].completed = 9), ["cpu-length"]);
}

#[test]
fn acp_is_compared_by_the_median_of_complete_runs() {
    let acp =
        |change: fn(&mut Acp)| missed_by(move |results| change(results.longshore.acp.as_mut().unwrap()));
    assert_eq!(acp(|acp| acp.acp[0].cpu_us_per_delta = 74.0), [""; 0]);
    assert_eq!(acp(|acp| acp.acp[0].cpu_us_per_delta = 76.0), ["acp-cpu"]);
    assert_eq!(acp(|acp| acp.acp[2].equal = 31), ["acp-cpu"]);
    assert_eq!(acp(|acp| acp.http[2].completed = 31), ["acp-cpu"]);
    assert_eq!(acp(|acp| acp.sessions.as_mut().unwrap().kept_equal = 31), ["acp-sessions"]);
}

#[test]
fn bindings_are_compared_with_server_sent_events_by_the_median_of_complete_runs() {
    let bindings = |change: fn(&mut Bindings)| {
        missed_by(move |results| change(results.longshore.bindings.as_mut().unwrap()))
    };
    // The median of SSE is 50.
    assert_eq!(bindings(|bindings| bindings.grpc[2].cpu_us_per_delta = 64.0), [""; 0]);
    assert_eq!(
        bindings(|bindings| bindings.grpc[..2].iter_mut().for_each(|run| run.cpu_us_per_delta = 66.0)),
        ["cpu-grpc"]
    );
    assert_eq!(bindings(|bindings| bindings.websocket[0].cpu_us_per_delta = 66.0), ["cpu-websocket"]);
    assert_eq!(bindings(|bindings| bindings.grpc[0].equal = 31), ["cpu-grpc"]);
    assert_eq!(bindings(|bindings| bindings.json_rpc[0].equal = 31), ["cpu-grpc", "cpu-websocket"]);
}

#[test]
fn the_lag_of_push_notifications_must_be_flat_and_that_of_all_of_them() {
    let push =
        |change: fn(&mut Push)| missed_by(move |results| change(results.longshore.push.as_mut().unwrap()));
    assert_eq!(push(|push| push.with[1].lag = counted(9_900, 31.0)), [""; 0]);
    let missed = ["push-lag"];
    assert_eq!(push(|push| push.with[1].lag = counted(9_900, 32.0)), missed);
    assert_eq!(push(|push| push.with[0].lag.p50_ms = 32.0), missed);
    assert_eq!(push(|push| push.with[0].delivered = 9_899), missed);
    assert_eq!(push(|push| push.without[0].repeated = 1), missed);
    assert_eq!(push(|push| push.with[0].retried = 0), missed);
    assert_eq!(push(|push| push.without.clear()), missed);
}

#[test]
fn an_unserved_client_meets_no_budget() {
    let stalled = |change: fn(&mut Stalled)| {
        missed_by(move |results| change(results.longshore.stalled.as_mut().unwrap()))
    };
    assert_eq!(stalled(|stalled| stalled.during = Delays::default()), ["stalled-delay"]);
    assert_eq!(stalled(|stalled| stalled.during.count /= 2), ["stalled-delay"]);
    assert_eq!(stalled(|stalled| stalled.whole = 95), ["stalled-delay"]);
    let overload = |change: fn(&mut Overload)| {
        missed_by(move |results| change(results.longshore.overload.as_mut().unwrap()))
    };
    assert_eq!(overload(|overload| overload.after = Delays::default()), ["overload-after"]);
    assert_eq!(overload(|overload| overload.after_per_second /= 2.0), ["overload-after"]);
    let flood = |change: fn(&mut Flood)| missed_by(move |results| change(&mut results.longshore.flood[1]));
    let (plain, rated) = (["flood-turns"], ["flood-rated-turns", "flood-rated-deltas"]);
    // `flood-deltas` is missed in any case.
    assert_eq!(flood(|flood| flood.flooded.turns = Delays::default()), plain);
    assert_eq!(flood(|flood| flood.flooded.wrong = 1), plain);
    assert_eq!(flood(|flood| flood.flood.sent = 0), plain);
    assert_eq!(flood(|flood| flood.rated_calm.whole = 7), rated);
    assert_eq!(flood(|flood| flood.rated.deltas = Delays::default()), rated);
    assert_eq!(flood(|flood| flood.rated.whole = 7), rated);
    assert_eq!(flood(|flood| flood.rated.turns.count = 100), ["flood-rated-turns"]);
    assert_eq!(flood(|flood| flood.rated_flood.broken = 100_000), rated);
}

#[test]
fn a_hanging_server_misses_the_soak_budgets() {
    let all = ["soak-memory", "soak-files", "soak-database", "soak-turns"];
    // From some minute on no turn ends.
    for minute in [0, 3, 12, 16, 18] {
        let hang = |results: &mut Results| {
            let soak = &mut results.longshore.soak;
            let turns = soak[minute].turns;
            soak.iter_mut().skip(minute).for_each(|sample| sample.turns = turns);
        };
        assert_eq!(missed_by(hang), all, "in minute {minute}");
    }
    let slower =
        |results: &mut Results| results.longshore.soak.iter_mut().for_each(|sample| sample.turns /= 2);
    assert_eq!(missed_by(slower), all);
    assert_eq!(missed_by(|results| results.longshore.soak[20].wrong = 1), ["soak-turns"]);
    // In a quick run all turns may end in the same quarter.
    let quick = |results: &mut Results| {
        for (second, sample) in (0_u32..).zip(&mut results.longshore.soak) {
            (sample.at_s, sample.turns) = (f64::from(second), if second < 11 { 0 } else { 200 });
        }
    };
    assert_eq!(missed_by(quick), [""; 0]);
}

#[test]
fn a_cell_explains_why_its_number_does_not_count() {
    let mut results = results();
    point(&mut results, 32).equal = 31;
    results.peer.as_mut().unwrap().unary[0].wrong = 500;
    let rows = rows(&results);
    assert_eq!(rows[0].peer, "20.0 (1000 right, 500 wrong)");
    assert_eq!(rows[1].longshore, "45.0 (32 of 32 streams complete, 31 equal)");
}
