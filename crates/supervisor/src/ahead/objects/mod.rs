//! What carries state between processes and is behind a descriptor: pipes, sockets, event counters, epoll sets, input,
//! locks of files.

pub(in crate::ahead) mod descriptor;
pub(in crate::ahead) mod epoll;
pub(in crate::ahead) mod eventfd;
pub(in crate::ahead) mod file_lock;
pub(in crate::ahead) mod input;
pub(in crate::ahead) mod pipe;
pub(in crate::ahead) mod sockets;
