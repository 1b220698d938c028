// loses: races
// Releases the lock between its look and the handle: an edge in between is overwritten.
// region: wait
let mut edge = self.edge.lock();
if let Some(outcome) = edge.enter() {
    return outcome;
}
loop {
    drop(edge);
    edge = self.edge.lock();
    edge.state = State::Waiting(door::begin_park(Wait::at(Reason::Poll, self)));
    drop(edge);
    let in_time = match deadline_ns {
        Some(deadline_ns) => door::park_until(deadline_ns),
        None => {
            door::park();
            true
        }
    };
    edge = self.edge.lock();
    if let Some(outcome) = edge.leave(in_time) {
        return outcome;
    }
    if door::is_killed() {
        let _ = edge.leave(false); // as at the deadline
        drop(edge);
        door::die();
    }
}
