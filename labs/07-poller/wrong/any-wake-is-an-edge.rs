// loses: edges
// Takes each wake-up for an edge: one that was meant for another wait of the G ends this one.
// region: edge
/// (1), (5): an edge. Returns the G to be readied.
#[must_use]
fn ready(&mut self) -> Option<H> {
    if self.is_closed {
        return None; // no wait will take it
    }
    let (after, waiter) = match core::mem::replace(&mut self.state, State::Idle) {
        State::Idle | State::Ready => (State::Ready, None),
        State::Waiting(g) => (State::Woken, Some(g)),
        State::Woken => (State::Woken, None),
    };
    self.state = after;
    waiter
}

/// (2): a G comes to wait. None: it must wait, and stores its handle next.
#[must_use]
fn enter(&mut self) -> Option<Result<(), PollError>> {
    if self.is_closed {
        return Some(Err(PollError::Closed));
    }
    match self.state {
        State::Idle => None,
        State::Ready => {
            self.state = State::Idle;
            Some(Ok(()))
        }
        State::Waiting(_) | State::Woken => Some(Err(PollError::Busy)),
    }
}

/// (4), (6): the G runs again, because it was readied `in_time` or because of the deadline.
/// None: the wake-up was unrelated, and it continues to wait.
#[must_use]
fn leave(&mut self, in_time: bool) -> Option<Result<(), PollError>> {
    let outcome = match self.state {
        _ if self.is_closed => Err(PollError::Closed),
        State::Woken => Ok(()),
        _ if in_time => Ok(()),
        _ => Err(PollError::TimedOut),
    };
    self.state = State::Idle;
    Some(outcome)
}

/// Returns the G to be readied, which sees the close in `leave`.
#[must_use]
fn close(&mut self) -> Option<H> {
    let waiter = self.ready();
    self.is_closed = true;
    waiter
}

fn reset(&mut self) -> Result<(), PollError> {
    if matches!(self.state, State::Waiting(_) | State::Woken) {
        return Err(PollError::Busy);
    }
    *self = Self::NEW;
    Ok(())
}
