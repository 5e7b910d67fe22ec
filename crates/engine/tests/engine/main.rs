//! The engine with a memory store and a scripted agent: every race and rule of a task's life.

mod asks;
mod harness;
mod races;
mod readers;
mod recovery;
mod sends;
mod turns;
