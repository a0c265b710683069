//! The owner of a connection, from the kernel's table of sockets (`sock_diag(7)`): one look-up,
//! however many sockets there are.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::{Ends, Owner};

/// An answer has about a hundred bytes.
const ANSWER: usize = 4096;

#[allow(clippy::unnecessary_wraps, reason = "other systems have none")]
pub(super) fn own_user() -> Option<u32> {
    Some(rustix::process::geteuid().as_raw())
}

/// The user who holds the peer's end. Between two addresses of one machine it is a separate socket,
/// with the addresses exchanged.
pub(super) fn of_peer(ends: Ends) -> Owner {
    match look_up(ends) {
        // A socket without an inode is closed; its user says nothing any more.
        Ok(Some((_, 0))) => Owner::Nobody,
        Ok(Some((user, _))) => Owner::User(user),
        Ok(None) if ends.peer.ip().is_loopback() => Owner::Nobody,
        // The peer is on another machine, or this system has no such table, as in some sandboxes.
        Ok(None) | Err(_) => Owner::Unknown,
    }
}

/// The user and the inode of the peer's socket, if there is one on this machine.
fn look_up(ends: Ends) -> io::Result<Option<(u32, u32)>> {
    let socket_id = SocketId {
        source_port: ends.peer.port(),
        destination_port: ends.local.port(),
        source_address: ends.peer.ip(),
        destination_address: ends.local.ip(),
        interface_id: 0,
        cookie: [0xff; 8],
    };
    let family = if matches!(ends.peer.ip(), IpAddr::V4(_)) { AF_INET } else { AF_INET6 };
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.send(&bytes, 0)?;
    // The kernel has answered by now.
    socket.set_non_blocking(true)?;
    let mut answer = Vec::with_capacity(ANSWER);
    socket.recv(&mut answer, 0)?;
    let answer = NetlinkMessage::<SockDiagMessage>::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
            let header = &found.header;
            // A listening socket at the same port answers for one that is not there.
            let is_it = header.socket_id.destination_port == ends.local.port();
            Ok(is_it.then_some((header.uid, header.inode)))
        }
        NetlinkPayload::Error(error) if error.to_io().kind() == io::ErrorKind::NotFound => Ok(None),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
