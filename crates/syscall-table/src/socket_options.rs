//! Who sees that an option of a socket is set (`setsockopt`), before anything is sent.
//!
//! What is not known is seen by the machine. That less or more is taken out of a socket, or that there is less room,
//! is seen by its peer as it is when data is read: such options are the owner's.

/// Who sees an option that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionShows {
    /// The socket's owner, and whoever receives what is sent later.
    Nobody,
    /// The other end of the connection: a probe is sent, or the connection ends sooner.
    Peer,
    /// The other end, if anything waits to be sent.
    Unsent,
    /// Who asks for the name of the socket.
    Name,
    /// Anybody: a message goes to the network, or the machine is another one.
    Machine,
}

/// Who sees that this option is set, at this level.
pub const fn option_shows(level: u32, option: u32) -> OptionShows {
    const SOL_IP: u32 = 0;
    const SOL_SOCKET: u32 = 1;
    const SOL_TCP: u32 = 6;
    const SOL_UDP: u32 = 17;
    const SOL_IPV6: u32 = 41;
    match level {
        SOL_SOCKET => of_socket(option),
        SOL_TCP => of_tcp(option),
        // UDP_CORK: a datagram is sent when it is taken away.
        SOL_UDP if option == 1 => OptionShows::Peer,
        SOL_IP => of_ip(option),
        SOL_IPV6 => of_ipv6(option),
        _ => OptionShows::Machine,
    }
}

const fn of_socket(option: u32) -> OptionShows {
    match option {
        // SO_REUSEADDR, SO_REUSEPORT: whether somebody else gets the same name.
        2 | 15 => OptionShows::Name,
        // SO_KEEPALIVE
        9 => OptionShows::Peer,
        // SO_DEBUG, SO_DONTROUTE to SO_RCVBUF, SO_OOBINLINE to SO_LINGER (closing waits), SO_PASSCRED to SO_SNDTIMEO
        1 | 5..=8 | 10..=13 | 16..=21
        // SO_TIMESTAMP, SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_PASSSEC to SO_MARK, SO_RXQ_OVFL to SO_NOFCS
        | 29 | 32..=37 | 40..=43
        // SO_SELECT_ERR_QUEUE to SO_MAX_PACING_RATE, SO_TXTIME, SO_TIMESTAMP_NEW to SO_SNDTIMEO_NEW
        | 45..=47 | 61 | 63..=67
        // SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET, SO_BUF_LOCK, SO_PASSPIDFD
        | 69 | 70 | 72 | 76 => OptionShows::Nobody,
        _ => OptionShows::Machine,
    }
}

const fn of_tcp(option: u32) -> OptionShows {
    match option {
        // TCP_NODELAY, TCP_CORK
        1 | 3 => OptionShows::Unsent,
        // TCP_KEEPIDLE to TCP_KEEPCNT, TCP_LINGER2, TCP_DEFER_ACCEPT, TCP_QUICKACK, TCP_USER_TIMEOUT, TCP_FASTOPEN
        4..=6 | 8 | 9 | 12 | 18 | 23 => OptionShows::Peer,
        // TCP_MAXSEG, TCP_SYNCNT, TCP_WINDOW_CLAMP, TCP_CONGESTION, TCP_NOTSENT_LOWAT, TCP_SAVE_SYN,
        // TCP_FASTOPEN_CONNECT, TCP_INQ
        2 | 7 | 10 | 13 | 25 | 27 | 30 | 36 => OptionShows::Nobody,
        _ => OptionShows::Machine,
    }
}

const fn of_ip(option: u32) -> OptionShows {
    match option {
        // IP_TOS to IP_OPTIONS, IP_RECVOPTS to IP_FREEBIND, IP_PASSSEC to IP_MINTTL, IP_CHECKSUM to
        // IP_BIND_ADDRESS_NO_PORT
        1..=4 | 6..=15 | 18..=21 | 23 | 24
        // IP_MULTICAST_IF to IP_MULTICAST_LOOP, IP_MULTICAST_ALL, IP_UNICAST_IF
        | 32..=34 | 49 | 50 => OptionShows::Nobody,
        // Of groups of receivers the neighbours are told, and what is behind them rules the machine's traffic.
        _ => OptionShows::Machine,
    }
}

const fn of_ipv6(option: u32) -> OptionShows {
    match option {
        // IPV6_2292PKTINFO to IPV6_2292HOPLIMIT, IPV6_UNICAST_HOPS to IPV6_MULTICAST_LOOP
        2..=8 | 16..=19
        // IPV6_MTU_DISCOVER to IPV6_V6ONLY, IPV6_MULTICAST_ALL, IPV6_RECVERR_RFC4884
        | 23..=26 | 29 | 31
        // IPV6_RECVPKTINFO to IPV6_DONTFRAG, IPV6_TRANSPARENT to IPV6_FREEBIND
        | 49..=62 | 66..=67 | 72..=78 => OptionShows::Nobody,
        _ => OptionShows::Machine,
    }
}
