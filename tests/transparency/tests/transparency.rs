//! One test for each scenario: `cargo test -p transparency -- NAME`.
//!
//! `SPECULATOR_INTERPOSE=stops` runs all of them through stops; `SPECULATOR_PREFIX="env"` compares native to native.

use std::process::ExitCode;
use std::sync::{Arc, RwLock};

use libtest_mimic::{Arguments, Failed, Trial};
use transparency::{check, discover, run, terminal, terminal_scenarios, Scenario, Settings};

fn main() -> ExitCode {
    run::close_inherited_on_exec();
    let arguments = Arguments::from_args();
    let settings = Arc::new(Settings::from_environment());
    let turn = Arc::new(RwLock::new(()));
    let scenarios = match discover::scenarios(&settings) {
        Ok(scenarios) => scenarios,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials: Vec<Trial> =
        scenarios.into_iter().map(|(kind, scenario)| trial(kind, scenario, &settings, &turn)).collect();
    trials.extend(terminal_scenarios::all().into_iter().map(|scenario| terminal_trial(scenario, &settings)));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(kind: &str, scenario: Scenario, settings: &Arc<Settings>, turn: &Arc<RwLock<()>>) -> Trial {
    let (settings, turn) = (Arc::clone(settings), Arc::clone(turn));
    let name = scenario.name.clone();
    let hindrance = scenario.hindrance(&settings);
    if let Some(reason) = &hindrance {
        eprintln!("{name}: left out: {reason}");
    }
    let run = move || {
        if scenario.directives.has("alone") {
            let _alone = turn.write();
            return check(&scenario, &settings).map_err(Failed::from);
        }
        let _with_others = turn.read();
        check(&scenario, &settings).map_err(Failed::from)
    };
    Trial::test(name, run).with_kind(kind).with_ignored_flag(hindrance.is_some())
}

fn terminal_trial(scenario: terminal::TerminalScenario, settings: &Arc<Settings>) -> Trial {
    let settings = Arc::clone(settings);
    let hindrance = scenario.hindrance();
    if let Some(reason) = &hindrance {
        eprintln!("{}: left out: {reason}", scenario.name);
    }
    let name = scenario.name;
    let run = move || terminal::check(&scenario, &settings).map_err(Failed::from);
    Trial::test(name, run).with_kind("terminal").with_ignored_flag(hindrance.is_some())
}
