// loses: fairness
// Does not note that the timer has fired: after a tick in the middle of a slice none ends it.
// region: rest
if is_running() && !cpu.slices.is_timed() && SCHED.needs_timer(p) {
    match g {
        Some(_) => cpu.slices.arm(now),
        // Perhaps it does not park: then it has the timer, and is not ended by this tick.
        None => cpu.slices.arm_whole(now),
    }
}
