//! The number of connections of a server, and each client's share of them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Access, Ends, Owner, Stream, owner};

/// A connection beyond the places may wait while fewer than this many do.
const WAITING: usize = 256;
/// How many connections that are turned away are told so at once. A further one is closed without a
/// word.
const TOLD: usize = 64;

/// Admits connections up to a limit. It determines the user of each one when it comes, so that a
/// connection that may not ask does not count.
#[doc(hidden)]
#[derive(Debug)]
pub struct Door {
    access: Access,
    limit: usize,
    places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    told: Arc<Semaphore>,
    shares: Arc<Shares>,
}

/// The treatment of a new connection.
#[doc(hidden)]
#[derive(Debug)]
pub enum Arrival {
    /// The connection is admitted. It counts until the place is dropped.
    Admitted(ConnectionPermit),
    /// The client may connect, and waits until another connection ends.
    Waits(Waiting),
    /// The user of the connection may not ask. The text is the reason. Send it to the client while
    /// `Told` is held.
    Refused(String, Told),
    /// There are too many connections. The text is the reason. Send it to the client while `Told`
    /// is held.
    Full(String, Told),
    /// The connection is closed without an answer, because too many other clients are being told
    /// why they were refused.
    Dropped,
}

/// A place among the admitted connections. It is free again when this is dropped.
#[doc(hidden)]
#[derive(Debug)]
pub struct ConnectionPermit {
    _place: OwnedSemaphorePermit,
    _share: Share,
}

/// A connection that waits for a place.
#[doc(hidden)]
#[derive(Debug)]
pub struct Waiting {
    places: Arc<Semaphore>,
    _waiting: OwnedSemaphorePermit,
    share: Share,
}

/// A place among the clients that are being told why they were refused. It is free again when this
/// is dropped.
#[doc(hidden)]
#[derive(Debug)]
pub struct Told(#[allow(dead_code, reason = "it is held")] OwnedSemaphorePermit);

/// A client whose connections count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ClientIdentity {
    /// The connections of one user of this machine, by the user's id.
    User(u32),
    /// The connections of another machine, by its IPv4 address, or by its IPv6 network, since one
    /// machine may have all addresses of a network.
    Machine(IpAddr),
}

type Shares = Mutex<HashMap<ClientIdentity, usize>>;

/// A connection among those of its client, until it is dropped.
#[derive(Debug)]
struct Share {
    client: ClientIdentity,
    shares: Arc<Shares>,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = shares.get_mut(&self.client) {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                shares.remove(&self.client);
            }
        }
    }
}

impl Door {
    /// Admits up to `limit` connections at a time, at least one.
    pub fn new(access: Access, limit: usize) -> Self {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            access,
            limit,
            places: Arc::new(Semaphore::new(limit)),
            waiting: Arc::new(Semaphore::new(WAITING)),
            told: Arc::new(Semaphore::new(TOLD)),
            shares: Arc::default(),
        }
    }

    /// The rules for who may ask.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The greatest number of connections at a time.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Decides on a new connection. If all places are taken and `may_wait` is set, the connection
    /// waits for one.
    pub fn arrive(&self, stream: &Stream, may_wait: bool) -> Arrival {
        let turn_away = |why: fn(String, Told) -> Arrival, text: String| match self.told.clone().try_acquire_owned() {
            Ok(told) => why(text, Told(told)),
            Err(_) => Arrival::Dropped,
        };
        let Some(ends) = stream.ends() else { return Arrival::Dropped };
        let user = ends.owner();
        if let Some(refusal) = self.access.refusal_of(user) {
            return turn_away(Arrival::Refused, refusal);
        }
        let share = match self.share(client(ends, user)) {
            Ok(share) => share,
            Err(most) => {
                let text = format!("too many connections of this client: it has {most} of the {} already", self.limit);
                return turn_away(Arrival::Full, text);
            }
        };
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Arrival::Admitted(ConnectionPermit { _place: place, _share: share });
        }
        match self.waiting.clone().try_acquire_owned() {
            Ok(waiting) if may_wait => {
                Arrival::Waits(Waiting { places: Arc::clone(&self.places), _waiting: waiting, share })
            }
            _ => turn_away(Arrival::Full, format!("too many clients: {} are connected already", self.limit)),
        }
    }

    /// A share for one more connection of a client, or how many it may have.
    fn share(&self, client: ClientIdentity) -> Result<Share, usize> {
        // The server is this user's: all places are.
        let is_own = match client {
            ClientIdentity::User(user) => user == 0 || Some(user) == owner::own_user(),
            // The system does not report the users of this machine.
            ClientIdentity::Machine(address) => address.is_loopback(),
        };
        let most = if is_own { usize::MAX } else { self.limit.div_ceil(2) };
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = shares.entry(client).or_default();
        if *taken >= most {
            return Err(most);
        }
        *taken += 1;
        Ok(Share { client, shares: Arc::clone(&self.shares) })
    }
}

impl Waiting {
    /// Waits for a place. It is cancel safe.
    ///
    /// # Errors
    /// The server ends, so that there will be no place.
    pub async fn place(self) -> io::Result<ConnectionPermit> {
        let place = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok(ConnectionPermit { _place: place, _share: self.share })
    }
}

fn client(ends: Ends, user: Owner) -> ClientIdentity {
    match (user, ends.peer.ip().to_canonical()) {
        (Owner::User(user), _) => ClientIdentity::User(user),
        (_, IpAddr::V6(address)) if !address.is_loopback() => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            ClientIdentity::Machine(Ipv6Addr::from(network).into())
        }
        (_, address) => ClientIdentity::Machine(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(peer: &str) -> Ends {
        Ends { local: "192.0.2.1:7000".parse().unwrap(), peer: peer.parse().unwrap() }
    }

    #[test]
    fn a_client_has_at_most_half_of_the_places_and_the_servers_user_all() {
        let door = Door::new(Access::same_user().with_any_user(), 5);
        let other = client(ends("[2001:db8:0:1::1]:1000"), Owner::Unknown);
        assert_eq!(other, client(ends("[2001:db8:0:1::2]:1001"), Owner::Unknown), "one machine has many addresses");
        assert_ne!(other, client(ends("[2001:db8:0:2::1]:1000"), Owner::Unknown));
        let mut shares: Vec<Share> = (0..3).map(|_| door.share(other).unwrap()).collect();
        assert_eq!(door.share(other).map(drop), Err(3));
        drop(door.share(client(ends("192.0.2.9:1000"), Owner::Unknown)).unwrap());
        shares.pop();
        shares.push(door.share(other).unwrap());
        drop(shares);
        assert!(door.shares.lock().unwrap().is_empty(), "clients that are gone are forgotten");
        if let Some(own) = owner::own_user() {
            let own: Vec<_> = (0..100).map(|_| door.share(ClientIdentity::User(own)).unwrap()).collect();
            assert_eq!(own.len(), 100);
            assert_eq!(door.share(ClientIdentity::User(4711)).map(drop), Ok(()));
        }
    }
}
