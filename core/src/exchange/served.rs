//! The state that all sessions with one extension share.

use core::fmt;

use super::SessionPolicy;
use crate::manifest::Manifest;
use crate::protocol::define::{Protocol, ServerState};
use crate::rpc;
use crate::service::Service;

/// The smallest size of a reply region, in bytes: that of an error reply to a request with the
/// longest id.
pub const LEAST_REPLY: usize = rpc::ERROR_ROOM + rpc::MAX_ID;

/// The state that all sessions with one extension share: its manifest, the protocols, the limits,
/// and the policy that decides who may start a session.
pub struct Served<'m> {
    pub(crate) manifest: &'static Manifest,
    /// The protocols, in the order in which they claim messages.
    pub(crate) protocols: &'m [&'static Protocol],
    /// The protocol of a message without a marker at the start of a session.
    pub(super) first: &'static Protocol,
    /// Whether every message is taken as one of the first protocol.
    pub(super) pinned: bool,
    pub(crate) service: Option<&'m dyn Service>,
    pub(crate) policy: Option<&'m dyn SessionPolicy>,
    /// The longest message that is accepted, and the longest reply that is sent to hosts that read
    /// lines of a limited length, in bytes without their newlines.
    pub(crate) limits: (usize, usize),
}

impl<'m> Served<'m> {
    /// State for an extension with this manifest, which speaks these protocols. A message belongs
    /// to the first protocol in the list whose marker it has; see [`Protocol::recognise`] for
    /// protocols that share a marker. A message without a marker belongs to the protocol of the
    /// message before. At the start of a session it belongs to the first protocol in the list.
    ///
    /// `limits` are the greatest lengths of a message and of a reply, in bytes. Hosts are told of
    /// them. The caller must enforce the first one. The second one is enforced here, and so is the
    /// length of the memory for replies.
    ///
    /// Returns none if the list is empty.
    pub fn new(
        manifest: &'static Manifest,
        protocols: &'m [&'static Protocol],
        limits: (usize, usize),
    ) -> Option<Self> {
        let first = protocols.first().copied()?;
        Some(Self { manifest, protocols, first, pinned: false, service: None, policy: None, limits })
    }

    /// Sets the only protocol. Every message is read as one of this protocol.
    #[must_use]
    pub fn with_protocol(mut self, protocol: &'static Protocol) -> Self {
        self.pin(protocol);
        self
    }

    pub(crate) fn pin(&mut self, protocol: &'static Protocol) {
        self.first = protocol;
        self.pinned = true;
    }

    /// Adds a service that answers its own requests, also while a call of the extension runs.
    #[must_use]
    pub fn with_service(self, service: &'m dyn Service) -> Self {
        Self { service: Some(service), ..self }
    }

    /// Sets the policy that decides who may start a session. Without a policy, everyone may.
    #[must_use]
    pub fn with_session_policy(self, policy: &'m dyn SessionPolicy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// The greatest lengths of a message and of a reply in JSON-RPC, in bytes.
    pub fn limits(&self) -> (usize, usize) {
        self.limits
    }

    /// The extension's manifest.
    pub fn manifest(&self) -> &'static Manifest {
        self.manifest
    }

    /// Whether the extension has work to do without a request.
    /// [`Session::own_work`](super::Session::own_work) begins it.
    #[inline]
    pub fn is_own_work_due(&self) -> bool {
        self.service.is_some_and(|service| service.next_job().is_some())
    }

    pub(super) fn server(&self, is_closed: bool) -> ServerState<'static> {
        ServerState { manifest: self.manifest, limits: self.limits, is_closed, is_ahead: false }
    }

    /// The protocol of the list that speaks JSON-RPC, the last one spoken if it does.
    pub(super) fn json_rpc(&self, last: &'static Protocol) -> Option<&'static Protocol> {
        core::iter::once(last).chain(self.protocols.iter().copied()).find(|protocol| protocol.is_json_rpc)
    }
}

impl fmt::Debug for Served<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served")
            .field("protocols", &self.protocols)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
