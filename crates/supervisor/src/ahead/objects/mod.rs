//! What carries state between processes and is behind a descriptor: pipes, sockets, event counters, epoll sets, input,
//! locks of files. A further kind comes in by [`kind`].

pub(in crate::ahead) mod descriptor;
pub(in crate::ahead) mod epoll;
pub(in crate::ahead) mod eventfd;
pub(in crate::ahead) mod file_lock;
pub(in crate::ahead) mod input;
pub(in crate::ahead) mod kind;
pub(in crate::ahead) mod new_pipes;
pub(in crate::ahead) mod pipe;
pub(in crate::ahead) mod record_lock;
pub(in crate::ahead) mod sockets;
pub(in crate::ahead) mod timerfd;
pub(in crate::ahead) mod young;
pub(in crate::ahead) mod young_pipes;

/// All kinds of objects that come in by [`kind`].
pub(in crate::ahead) static KINDS: [&dyn kind::Kind; 2] = [&eventfd::Counters, &timerfd::Timers];
