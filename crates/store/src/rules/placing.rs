//! Where a new task is to work: the session and the directory of its context.

use longshore_engine::port::{Bound, ContextPlace, Create, Created, Owned, Session};
use longshore_model::{Error, Principal, Result, SessionId, TaskEvent};

/// What a `Create` says of where to work.
pub(crate) struct Wanted {
    directory: String,
    directory_named: bool,
    /// The session that the caller named.
    session: Option<SessionId>,
    claim: Option<Session>,
    /// The session in which the turn runs already.
    begun_in: Option<SessionId>,
    /// It is named for the context, and not for this one task: an order, or a turn that somebody else began, says nothing of
    /// what the caller wants of the context.
    is_for_context: bool,
}

impl Wanted {
    pub(crate) fn of(create: &Create) -> Result<Self> {
        let Create { directory, directory_named, session, claim, begun, .. } = create;
        let begun_in = begun.as_ref().map(|begun| &begun.turn.session.id);
        if claim.as_ref().is_some_and(|claim| Some(&claim.id) != session.as_ref()) {
            return Err(Error::internal("the session that is claimed is not the one that was named"));
        }
        if begun_in.is_some() && session.is_some() && begun_in != session.as_ref() {
            return Err(Error::internal("the turn runs in another session than the one that was named"));
        }
        Ok(Self {
            directory: directory.clone(),
            directory_named: *directory_named,
            session: session.clone(),
            claim: claim.clone(),
            begun_in: begun_in.cloned(),
            is_for_context: begun.is_none() && !is_order(&create.first),
        })
    }

    /// The session of which it matters whose it is.
    pub(crate) fn used_session(&self) -> Option<&SessionId> {
        self.session.as_ref().or(self.begun_in.as_ref())
    }
}

fn is_order(first: &TaskEvent) -> bool {
    matches!(first, TaskEvent::Submitted { terms, .. } if terms.order.is_some())
}

/// What is to be written with a new task.
#[derive(Default)]
pub(crate) struct Placement {
    /// A session that was nobody's and becomes the caller's.
    pub(crate) claims: Option<Session>,
    /// What the context is to be bound to.
    pub(crate) binds: Option<Bound>,
    /// Where the context is to work from now on.
    pub(crate) settles: Option<String>,
}

/// `place` is what is known of the context, `known` what is known of [`Wanted::used_session`]. The error is the answer to
/// the caller; nothing may be written then.
pub(crate) fn place(
    wanted: &Wanted,
    owner: &Principal,
    place: &ContextPlace,
    known: Option<&Owned>,
) -> std::result::Result<Placement, Created> {
    let mut placement = match (&wanted.session, &wanted.begun_in, known) {
        (Some(name), ..) => name_session(name, wanted, owner, place.bound.as_ref(), known)?,
        (None, Some(_), None) => return Err(Created::UnknownSession),
        (None, Some(_), Some(known)) if known.owner != *owner => return Err(Created::ForeignSession),
        (None, ..) => Placement::default(),
    };
    let bound = placement.binds.as_ref().or(place.bound.as_ref());
    let brought = bound.map(|bound| &bound.session.directory);
    let directory = place.directory.as_ref().or(brought).unwrap_or(&wanted.directory);
    // Whoever names a session for a context wants the context to work where the session does. A session that the
    // context has already may have been moved by the gateway.
    let moves = place.bound.is_none() && brought.is_some_and(|brought| brought != directory);
    if moves || wanted.directory_named && wanted.directory != *directory {
        return Err(Created::OtherDirectory);
    }
    if place.directory.is_none() {
        placement.settles = Some(directory.clone());
    }
    Ok(placement)
}

fn name_session(
    name: &SessionId,
    wanted: &Wanted,
    owner: &Principal,
    bound: Option<&Bound>,
    known: Option<&Owned>,
) -> std::result::Result<Placement, Created> {
    let (session, claims) = match (bound, known, &wanted.claim) {
        (Some(bound), ..) if bound.session.id == *name => (&bound.session, None),
        (Some(_), ..) => return Err(Created::OtherSession),
        (None, Some(known), _) if known.owner == *owner => (&known.session, None),
        (None, Some(_), _) => return Err(Created::ForeignSession),
        (None, None, Some(claim)) => (claim, Some(claim.clone())),
        (None, None, None) => return Err(Created::UnknownSession),
    };
    // A binding that says so already stays as it is.
    let changes = bound.is_none_or(|bound| !bound.named && wanted.is_for_context);
    let binds = changes.then(|| Bound { session: session.clone(), named: true });
    Ok(Placement { claims, binds, settles: None })
}
