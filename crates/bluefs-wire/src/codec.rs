//! Values to bytes and back.

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It ends too early.
    #[error("the message ends within a field")]
    Short,
    /// Bytes are left over.
    #[error("the message has {0} bytes behind its last field")]
    Long(usize),
    /// An enumeration has no such value.
    #[error("there is no {what} {value}")]
    Unknown {
        /// Which enumeration.
        what: &'static str,
        /// The value.
        value: u8,
    },
    /// A length is above its bound.
    #[error("a {what} of length {len} is longer than allowed")]
    TooLong {
        /// Of what.
        what: &'static str,
        /// The length.
        len: usize,
    },
    /// A value that its type does not have: a name with a slash, runs out of order.
    #[error("the {0} is not valid")]
    Invalid(&'static str),
    /// The checksum of a frame is wrong.
    #[error("the checksum of a frame is wrong")]
    Checksum,
}

/// What is left of a message.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A length that is at most `max`, of elements of at least `each` bytes, as many as can still be there.
    pub fn len(&mut self, what: &'static str, max: usize, each: usize) -> Result<usize, WireError> {
        let len = u32::get(self)? as usize;
        if len > max {
            return Err(WireError::TooLong { what, len });
        }
        if len.saturating_mul(each.max(1)) > self.0.len() {
            return Err(WireError::Short);
        }
        Ok(len)
    }
}

/// A type with an encoding.
pub trait Wire: Sized {
    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads it.
    fn get(from: &mut Reader) -> Result<Self, WireError>;
}

/// The bytes of a value.
pub fn encode<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// The value of these bytes, all of them.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    let mut reader = Reader(bytes);
    let value = T::get(&mut reader)?;
    match reader.0.len() {
        0 => Ok(value),
        left => Err(WireError::Long(left)),
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn get(from: &mut Reader) -> Result<Self, WireError> {
                let bytes = from.take(size_of::<$number>())?;
                Ok(<$number>::from_le_bytes(bytes.try_into().expect("as many as were asked for")))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(WireError::Unknown { what: "truth value", value }),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(from: &mut Reader) -> Result<Self, WireError> {
        Ok(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

/// Appends a byte string.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u32).put(out);
    out.extend(bytes);
}

/// Reads a byte string.
pub fn get_bytes(from: &mut Reader, what: &'static str, max: usize) -> Result<Vec<u8>, WireError> {
    let len = from.len(what, max, 1)?;
    Ok(from.take(len)?.to_vec())
}

/// Appends a list.
pub fn put_list<T: Wire>(list: &[T], out: &mut Vec<u8>) {
    (list.len() as u32).put(out);
    list.iter().for_each(|element| element.put(out));
}

/// Reads a list. Every element has at least one byte, so that no more is allocated than was sent, times the size of an
/// element.
pub fn get_list<T: Wire>(from: &mut Reader, what: &'static str, max: usize) -> Result<Vec<T>, WireError> {
    let len = from.len(what, max, 1)?;
    (0..len).map(|_| T::get(from)).collect()
}

/// An enumeration or a structure: its fields in order. A field is its type's encoding; `[what, max]` behind it marks a
/// byte string, `{what, max}` a list.
macro_rules! wire_struct {
    ($type:ident { $($field:ident $([$bytes:literal, $bytes_max:expr])? $({$list:literal, $list_max:expr})?),* $(,)? }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let $type { $($field),* } = self;
                $($crate::codec::put_field!($field, out $([$bytes])? $({$list})?);)*
            }

            fn get(from: &mut Reader) -> Result<Self, WireError> {
                $(let $field = $crate::codec::get_field!(from $([$bytes, $bytes_max])? $({$list, $list_max})?);)*
                Ok($type { $($field),* })
            }
        }
    };
}

macro_rules! wire_enum {
    ($what:literal $type:ident { $($tag:literal $variant:ident
        { $($field:ident $([$bytes:literal, $bytes_max:expr])? $({$list:literal, $list_max:expr})?),* }),* $(,)? }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant { $($field),* } => {
                        out.push($tag);
                        $($crate::codec::put_field!($field, out $([$bytes])? $({$list})?);)*
                    })*
                }
            }

            fn get(from: &mut Reader) -> Result<Self, WireError> {
                match u8::get(from)? {
                    $($tag => {
                        $(let $field = $crate::codec::get_field!(from $([$bytes, $bytes_max])? $({$list, $list_max})?);)*
                        Ok($type::$variant { $($field),* })
                    })*
                    value => Err(WireError::Unknown { what: $what, value }),
                }
            }
        }
    };
}

/// The same for variants of one unnamed field, or of none.
macro_rules! wire_tuples {
    ($what:literal $type:ident { $($tag:literal $variant:ident $(($field:ident $([$bytes:literal, $bytes_max:expr])? $({$list:literal, $list_max:expr})?))?),* $(,)? }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant $(($field))? => {
                        out.push($tag);
                        $($crate::codec::put_field!($field, out $([$bytes])? $({$list})?);)?
                    })*
                }
            }

            fn get(from: &mut Reader) -> Result<Self, WireError> {
                match u8::get(from)? {
                    $($tag => {
                        $(let $field = $crate::codec::get_field!(from $([$bytes, $bytes_max])? $({$list, $list_max})?);)?
                        Ok($type::$variant $(($field))?)
                    })*
                    value => Err(WireError::Unknown { what: $what, value }),
                }
            }
        }
    };
}

macro_rules! put_field {
    ($field:ident, $out:ident) => {
        $field.put($out)
    };
    ($field:ident, $out:ident [$what:literal]) => {
        $crate::codec::put_bytes($field, $out)
    };
    ($field:ident, $out:ident {$what:literal}) => {
        $crate::codec::put_list($field, $out)
    };
}

macro_rules! get_field {
    ($from:ident) => {
        Wire::get($from)?
    };
    ($from:ident [$what:literal, $max:expr]) => {
        $crate::codec::get_bytes($from, $what, $max)?
    };
    ($from:ident {$what:literal, $max:expr}) => {
        $crate::codec::get_list($from, $what, $max)?
    };
}

pub(crate) use {get_field, put_field, wire_enum, wire_struct, wire_tuples};
