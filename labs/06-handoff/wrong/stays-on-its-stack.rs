// loses: calls
// The spare M takes over, and begins on the stack on which the call waits.
// region: hand_over
let next = cpu.spare.take().expect("a call runs without a spare M");
let own = cpu.m();
own.g.set(Some(g));
own.set_state(MState::InCall);
next.set_state(MState::OnCpu);
cpu.m.set(Some(next));
cpu.counters.handoffs.add_one();
if cpu.slices.attention.has(Attention::TRACED | Attention::SYSTEM) {
    handed_over(cpu, g, own, next);
}
g.enter_call(arch::cpu_index());
