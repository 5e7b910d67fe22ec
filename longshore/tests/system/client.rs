//! The commands that call an agent, as programs: against a gateway with a fake OpenCode, and against servers that are no agents.

mod answers;
mod attach;
mod bindings;
mod broken;
mod doctor;
mod exit_codes;
mod fixture;
mod hostile;
mod interrupts;
mod lists;
mod own_gateway;
mod printed;
mod terminal;
