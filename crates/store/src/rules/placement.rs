//! Decides in which session and directory a new task works.

use longshore_engine::port::{Bound, ContextLocation, Create, Created, OwnedSession, Session};
use longshore_model::{Error, Principal, Result, SessionId, TaskEvent};

/// The session and directory that a `Create` requests.
pub(crate) struct PlacementRequest {
    directory: String,
    directory_named: bool,
    /// The session that the caller named, if any.
    session: Option<SessionId>,
    claim: Option<Session>,
    /// The session in which the turn already runs. `None`: the turn has not started.
    running_in: Option<SessionId>,
    /// Whether the caller named the session for the whole context. A native prompt or an external turn names a session for
    /// its one task only.
    is_for_context: bool,
}

impl PlacementRequest {
    pub(crate) fn new(create: &Create) -> Result<Self> {
        let Create { directory, directory_named, session, claim, begun, .. } = create;
        let running_in = begun.as_ref().map(|begun| &begun.turn.session.id);
        if claim.as_ref().is_some_and(|claim| Some(&claim.id) != session.as_ref()) {
            return Err(Error::internal("the claimed session is not the named one"));
        }
        if running_in.is_some() && session.is_some() && running_in != session.as_ref() {
            return Err(Error::internal("the turn runs in another session than the named one"));
        }
        Ok(Self {
            directory: directory.clone(),
            directory_named: *directory_named,
            session: session.clone(),
            claim: claim.clone(),
            running_in: running_in.cloned(),
            is_for_context: begun.is_none() && !is_native_prompt(&create.first),
        })
    }

    /// The session that the task uses and whose owner must be checked.
    pub(crate) fn used_session(&self) -> Option<&SessionId> {
        self.session.as_ref().or(self.running_in.as_ref())
    }
}

fn is_native_prompt(first: &TaskEvent) -> bool {
    matches!(first, TaskEvent::Submitted { options, .. } if options.order.is_some())
}

/// The session and directory of a new task, to be written with it.
#[derive(Default)]
pub(crate) struct Placement {
    /// An unowned session that the caller claims with this task.
    pub(crate) claim: Option<Session>,
    /// The new binding of the context. `None`: it does not change.
    pub(crate) binding: Option<Bound>,
    /// The directory to record for a context that had none.
    pub(crate) directory: Option<String>,
}

/// Decides the session and directory of a new task. `current`: the context's current location. `known`: the owner of
/// [`PlacementRequest::used_session`]. An error is for the caller, and nothing may be written after it.
pub(crate) fn decide_placement(
    request: &PlacementRequest,
    owner: &Principal,
    current: &ContextLocation,
    known: Option<&OwnedSession>,
) -> std::result::Result<Placement, Created> {
    let mut placement = match (&request.session, &request.running_in, known) {
        (Some(name), ..) => name_session(name, request, owner, current.bound.as_ref(), known)?,
        (None, Some(_), None) => return Err(Created::UnknownSession),
        (None, Some(_), Some(known)) if known.owner != *owner => return Err(Created::ForeignSession),
        (None, ..) => Placement::default(),
    };
    let bound = placement.binding.as_ref().or(current.bound.as_ref());
    let session_directory = bound.map(|bound| &bound.session.directory);
    let directory = current.directory.as_ref().or(session_directory).unwrap_or(&request.directory);
    // A caller that names a session for a context asks the context to work in the session's directory. If the context is already
    // bound to the session, a different directory is no such request: the gateway may have moved the session.
    let moves = current.bound.is_none() && session_directory.is_some_and(|own| own != directory);
    if moves || request.directory_named && request.directory != *directory {
        return Err(Created::OtherDirectory);
    }
    if current.directory.is_none() {
        placement.directory = Some(directory.clone());
    }
    Ok(placement)
}

fn name_session(
    name: &SessionId,
    request: &PlacementRequest,
    owner: &Principal,
    bound: Option<&Bound>,
    known: Option<&OwnedSession>,
) -> std::result::Result<Placement, Created> {
    let (session, claim) = match (bound, known, &request.claim) {
        (Some(bound), ..) if bound.session.id == *name => (&bound.session, None),
        (Some(_), ..) => return Err(Created::OtherSession),
        (None, Some(known), _) if known.owner == *owner => (&known.session, None),
        (None, Some(_), _) => return Err(Created::ForeignSession),
        (None, None, Some(session)) => (session, Some(session.clone())),
        (None, None, None) => return Err(Created::UnknownSession),
    };
    // A binding that was already named by the caller stays unchanged.
    let changes = bound.is_none_or(|bound| !bound.named && request.is_for_context);
    let binding = changes.then(|| Bound { session: session.clone(), named: true });
    Ok(Placement { claim, binding, directory: None })
}
