// loses: arm
// Arms the timer for whatever was asked last: an earlier deadline is forgotten.
// region: arm
let at = at.min(self.due.get());
if at != NEVER {
    self.armed.set(at);
    arch::arm_timer(at);
}
