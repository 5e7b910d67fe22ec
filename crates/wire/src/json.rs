//! Reads and writes JSON one level at a time. Each error contains the path of the invalid value.

mod carried;
mod fault;
mod object;
mod scalar;
mod writer;

pub(crate) use carried::{carried_json, carried_metadata, on_one_line};
pub(crate) use fault::{Fault, Read};
pub(crate) use object::{Object, list, members, text_of};
pub(crate) use scalar::{boolean, count, flag_from_text, int32, int32_from_text, is_null, some_text, text};
pub(crate) use writer::{ObjectWriter, text_of_list, write_array, write_number, write_text};
