//! Tests the rules of the table on each row: valid parameters are accepted, and each invalid parameter is named by its path.

use std::cell::Cell;

use longshore_model::ErrorKind;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::all;
use crate::extension::Activated;
use crate::surface::ProtocolVersion;
use crate::testing::params;

/// A runner that generates the same values in each run.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn valid_parameters_are_read_in_both_versions() {
    for method in all() {
        let outcome = runner(128).run(&params::some(method.params), |params| {
            let params = params.to_string();
            let [one, other] =
                ProtocolVersion::ALL.map(|version| method.read(version, &params, Activated::ALL));
            prop_assert_eq!(one.unwrap(), other.unwrap(), "{} {}", method.name, params);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", method.name));
    }
}

#[test]
fn each_invalid_parameter_is_named_by_its_path_in_both_versions() {
    for method in all() {
        let (broken, kept) = (Cell::new(0), Cell::new(0));
        let outcome = runner(3).run(&params::full(method.params), |params| {
            for change in params::changes(method.params, &params) {
                let changed = change.apply(&params).to_string();
                for version in ProtocolVersion::ALL {
                    let read = method.read(version, &changed, Activated::ALL);
                    // Long texts are cut in messages.
                    let about = || format!("{} {version:?} {:.300}", method.name, changed);
                    let Some(path) = &change.breaks else {
                        kept.set(kept.get() + 1);
                        prop_assert!(read.is_ok(), "{} {:?}", about(), read);
                        continue;
                    };
                    broken.set(broken.get() + 1);
                    prop_assert!(read.is_err(), "{} should break {path}", about());
                    let error = read.unwrap_err();
                    prop_assert_eq!(error.kind(), ErrorKind::InvalidParams, "{}", about());
                    let first = error.violations().first().map(|violation| violation.field.as_str());
                    prop_assert_eq!(first, Some(path.as_str()), "{} {}", about(), error);
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", method.name));
        assert!(broken.get() > 0 && (kept.get() > 0 || method.params.is_empty()), "{}", method.name);
    }
}
