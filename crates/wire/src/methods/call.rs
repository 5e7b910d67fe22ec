//! Decodes the parameters of an extension method into a call.

use std::collections::btree_map::Entry;

use longshore_model::{Answer, AskKind, ControlRequest, Error, ErrorKind, RequestId, Result};
use serde_json::value::RawValue;

use super::args::{self, Member, Members};
use super::row::{Method, Switch};
use crate::extension::{Activated, HEADER, naming};
use crate::json::{Fault, Read, is_null, text_of_list};
use crate::surface::ProtocolVersion;

/// A decoded call of an extension method.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Answers an ask.
    Answer { request: RequestId, answer: Answer },
    /// Lists the open asks of this kind.
    OpenAsks(AskKind),
    /// Lists the approvals that the gateway keeps.
    Approvals,
    /// Revokes the approval that was given with the answer to this ask.
    RevokeApproval(RequestId),
    /// Queries or controls the agent.
    Control(ControlRequest),
}

/// A switch that the parameters of a call need, in addition to the switch of the method. The caller also needs its capability.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// The parameter that needs the switch.
    pub field: String,
    pub switch: Switch,
}

/// The object that may contain the parameters of a list in 0.3.
const QUERY: &str = "query";

/// Parameters of paging styles that the gateway does not support. Requests with one of them are refused.
pub(crate) const OTHER_PAGING: [&str; 3] = ["cursor", "page", "size"];

impl Method {
    /// Fails if the caller has not activated the extension. In 0.3 all extensions are active.
    pub fn check_activated(&self, activated: Activated) -> Result<()> {
        if activated.contains(self.extension) {
            return Ok(());
        }
        let uri = self.extension.uri();
        let text = format!("{} belongs to an extension; send {HEADER}: {uri} with the request.", self.name);
        let error = Error::new(ErrorKind::ExtensionNotActivated, text).detail("method", self.name);
        Err(naming(error, &[self.extension], activated))
    }

    /// Decodes a call from its parameters, a JSON object. Checks, in this order, that the extension is activated, that every
    /// parameter is known, and that every value is valid. The caller of this function checks the switches and the capabilities.
    pub fn read(&self, version: ProtocolVersion, params: &str, activated: Activated) -> Result<Call> {
        self.read_with_need(version, params, activated).map(|(call, _)| call)
    }

    /// Like `read`, but also returns the additional switch that these parameters need.
    pub fn read_with_need(
        &self,
        version: ProtocolVersion,
        params: &str,
        activated: Activated,
    ) -> Result<(Call, Option<Need>)> {
        self.check_activated(activated)?;
        let raw: &RawValue = serde_json::from_str(params).map_err(|error| {
            Error::new(ErrorKind::InvalidParams, "The parameters must be a JSON object.").caused_by(error)
        })?;
        self.read_members(version, raw).map_err(Fault::into_params_error)
    }

    fn read_members(&self, version: ProtocolVersion, params: &RawValue) -> Read<(Call, Option<Need>)> {
        let mut members = args::plain(params)?;
        if self.paged {
            if version == ProtocolVersion::V03 {
                merge_query(&mut members)?;
            }
            refuse_other_paging(&members)?;
        }
        let args = args::check(self.params, self.first, &members)?;
        let need = args::need(self.params, &args).map(|(field, switch)| Need { field, switch });
        Ok(((self.build)(&args), need))
    }
}

/// Moves the parameters in the object `query` to the top level.
fn merge_query(members: &mut Members<'_>) -> Read<()> {
    let Some(query) = members.remove(QUERY).filter(|query| !is_null(query.raw)) else { return Ok(()) };
    for (name, member) in args::plain(query.raw).map_err(|fault| fault.under(QUERY))? {
        let found = Member { raw: member.raw, within: Some(QUERY) };
        match members.entry(name) {
            Entry::Vacant(free) => {
                free.insert(found);
            }
            Entry::Occupied(_) if is_null(found.raw) => {}
            Entry::Occupied(mut beside) if is_null(beside.get().raw) => {
                beside.insert(found);
            }
            Entry::Occupied(beside) => {
                let fault = Fault::new("is also given outside of query; leave one of them out");
                return Err(fault.under(beside.key()).under(QUERY));
            }
        }
    }
    Ok(())
}

fn refuse_other_paging(members: &Members<'_>) -> Read<()> {
    let used = OTHER_PAGING.iter().find_map(|name| Some((*name, members.get(*name)?)));
    let Some((name, member)) = used else { return Ok(()) };
    let fault = args::placed(Fault::new("is not supported for paging; use limit"), name, *member);
    Err(fault.fact("supported", text_of_list(["limit"])).fact("unsupported", text_of_list(OTHER_PAGING)))
}
