//! What a panic carries: its message, or a value that is no text; and what a hook is told of it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::panic::Location;

/// A panic that has ended its G, or that [`catch`](crate::catch) has caught. Two are equal if their
/// messages are.
///
/// ```
/// use runnext::{panic::panic_any, prelude::*};
/// let said = catch(|| panic!("no {}", 7)).unwrap_err();
/// assert_eq!(said.message(), "no 7");
/// let thrown = catch(|| panic_any(7_u32)).unwrap_err();
/// assert_eq!(thrown.downcast::<u32>(), Ok(7));
/// ```
pub struct Panic(Box<[Repr; 1]>);

/// In one word of a [`Panic`], so that results of Gs and of calls are small; in an array, as a `Vec`
/// can be asked for memory that may be missing.
enum Repr {
    Message(String),
    Value(Value),
}

/// The value of a `panic_any`.
struct Value(Box<dyn Any + Send>);

// SAFETY: a shared reference to one leads to the value only if that is a text (`Panic::message`),
// or to its type, which does not read it.
unsafe impl Sync for Value {}

impl Panic {
    /// The panic with that message; `None` if there is no memory for it.
    pub(crate) fn try_new(message: String) -> Option<Self> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(Repr::Message(message));
        one.into_boxed_slice().try_into().ok().map(Panic)
    }

    fn repr(&self) -> &Repr {
        &self.0[0]
    }

    /// The message of a `panic!`, or the value itself if it is a text.
    #[must_use]
    pub fn message(&self) -> &str {
        match self.repr() {
            Repr::Message(message) => message,
            Repr::Value(Value(value)) => value.downcast_ref::<&str>().unwrap_or(&NO_TEXT),
        }
    }

    /// Whether it carries a value of that type; the message of a `panic!` is a `String`.
    #[must_use]
    pub fn is<T: Any>(&self) -> bool {
        match self.repr() {
            Repr::Message(message) => (message as &dyn Any).is::<T>(),
            Repr::Value(Value(value)) => value.is::<T>(),
        }
    }

    /// The value of a [`panic_any`](crate::panic::panic_any), if it has that type; else the panic
    /// as it was. The message of a `panic!` is a `String`.
    pub fn downcast<T: Any>(self) -> Result<T, Self> {
        if self.is::<T>() {
            return Ok(*self.into_payload().downcast().expect("it is one"));
        }
        Err(self)
    }

    /// What it carries, as a panic of std does.
    #[must_use]
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        let [repr] = *self.0;
        match repr {
            Repr::Message(message) => Box::new(message),
            Repr::Value(Value(value)) => value,
        }
    }

    /// The same, where it is.
    pub(crate) fn payload(&mut self) -> &mut (dyn Any + Send) {
        match &mut self.0[0] {
            Repr::Message(message) => message,
            Repr::Value(Value(value)) => &mut **value,
        }
    }
}

/// The message of a value that is no text; std says so, too.
const NO_TEXT: &str = "Box<dyn Any>";

impl From<String> for Panic {
    fn from(message: String) -> Self {
        Panic(Box::new([Repr::Message(message)]))
    }
}

impl From<&str> for Panic {
    fn from(message: &str) -> Self {
        String::from(message).into()
    }
}

impl From<Box<dyn Any + Send>> for Panic {
    fn from(value: Box<dyn Any + Send>) -> Self {
        match value.downcast::<String>() {
            Ok(message) => (*message).into(),
            Err(value) => Panic(Box::new([Repr::Value(Value(value))])),
        }
    }
}

impl PartialEq for Panic {
    fn eq(&self, other: &Self) -> bool {
        self.message() == other.message()
    }
}

impl Eq for Panic {}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.message(), f)
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.message())
    }
}

impl core::error::Error for Panic {}

/// What a panic hook is told.
pub struct PanicHookInfo<'a> {
    pub(crate) payload: &'a (dyn Any + Send),
    pub(crate) location: Option<&'a Location<'a>>,
}

impl<'a> PanicHookInfo<'a> {
    /// What the panic carries: the value of a [`panic_any`](crate::panic::panic_any), or the
    /// message of a `panic!`, which is a `String`.
    #[must_use]
    pub fn payload(&self) -> &'a (dyn Any + Send) {
        self.payload
    }

    /// The same, if it is a text.
    #[must_use]
    pub fn payload_as_str(&self) -> Option<&'a str> {
        let text = self.payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| self.payload.downcast_ref::<&str>().copied())
    }

    /// The same, or a word for what is no text.
    pub(crate) fn message(&self) -> &'a str {
        self.payload_as_str().unwrap_or(NO_TEXT)
    }

    /// Where it panicked.
    #[must_use]
    pub fn location(&self) -> Option<&'a Location<'a>> {
        self.location
    }
}

impl fmt::Display for PanicHookInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("panicked")?;
        if let Some(location) = self.location {
            write!(f, " at {location}")?;
        }
        write!(f, ": {}", self.message())
    }
}

impl fmt::Debug for PanicHookInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PanicHookInfo");
        shown.field("payload", &self.message());
        shown.field("location", &self.location).finish()
    }
}

/// What a program has called at each of its panics; shared by the Gs that panic now.
pub(crate) type Hook = Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_panic_has_a_message_or_a_value() {
        let is_sync = |_: &(dyn Sync + Send)| ();
        let said = Panic::from("no");
        is_sync(&said);
        assert_eq!((said.message(), &*format!("{said}")), ("no", "panicked: no"));
        assert_eq!(said, Panic::from(Box::new(String::from("no")) as Box<dyn Any + Send>));
        assert_eq!(said, Panic::from(Box::new("no") as Box<dyn Any + Send>));
        assert!(said.is::<String>() && !said.is::<u32>());
        let said = said.downcast::<u32>().expect_err("it is a text");
        assert_eq!(said.downcast(), Ok(String::from("no")));
        let value = Panic::from(Box::new(Cell::new(3)) as Box<dyn Any + Send>);
        assert_eq!(value.message(), NO_TEXT);
        assert!(value.is::<Cell<i32>>());
        assert_eq!(value.downcast().map(|cell: Cell<i32>| cell.get()), Ok(3));
    }

    #[test]
    fn a_reason_takes_two_words() {
        use crate::run::error::JoinError;
        assert_eq!(size_of::<Result<(), JoinError>>(), 2 * size_of::<usize>());
    }
}
