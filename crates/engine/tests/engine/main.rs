//! The engine with a memory store and a scripted agent: every race and rule of a task's life.

mod asks;
mod credentials;
mod files;
mod gate;
mod harness;
mod hops;
mod joining;
mod joining_races;
mod late_answers;
mod left_turns;
mod limits;
mod lost_answers;
mod metrics;
mod power_loss;
mod races;
mod readers;
mod recovery;
mod retention;
mod sends;
mod starting;
mod sub_agent_faults;
mod sub_agents;
mod traces;
mod turns;
mod unfinished;
mod wishes;
