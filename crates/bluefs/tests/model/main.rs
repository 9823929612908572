//! The protocol, model-checked with the code that runs: small worlds of two clients and a server, every order of
//! events. Each model is also run with a planted bug, which it has to find: a model that finds nothing shows nothing.

mod merging;
mod moving;
mod protocol;
mod recall;
mod turns;
