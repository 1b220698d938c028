// loses: edges
// After a wake-up of another kind it parks without a new begin_park: an edge in between is lost.
// region: wait
let mut edge = self.edge.lock();
if let Some(outcome) = edge.enter() {
    return outcome;
}
// (3): stored after `begin_park`.
edge.state = State::Waiting(door::begin_park(Wait::at(Reason::Poll, self)));
loop {
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
