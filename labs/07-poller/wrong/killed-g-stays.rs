// loses: close
// A G that is killed in its wait dies, and the descriptor still has its handle.
// region: wait
let mut edge = self.edge.lock();
if let Some(outcome) = edge.enter() {
    return outcome;
}
loop {
    // (3): stored after `begin_park`.
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
        drop(edge);
        door::die();
    }
}
