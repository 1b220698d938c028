// loses: no-ticks
// Arms the timer for each slice, whether another G waits or not.
// region: rest
if fired {
    cpu.slices.attention.set(Attention::UNTIMED);
}
let _ = p;
if is_running() && !cpu.slices.is_timed() {
    match g {
        Some(_) => cpu.slices.arm(now),
        // Perhaps it does not park: then it has the timer, and is not ended by this tick.
        None => cpu.slices.arm_whole(now),
    }
}
