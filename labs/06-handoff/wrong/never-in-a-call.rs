// loses: calls
// The M that leaves is not noted as away: reports and statistics see it on its CPU.
// region: hand_over
let next = cpu.spare.take().expect("a call runs without a spare M");
let own = cpu.m();
own.g.set(Some(g));
next.set_state(MState::OnCpu);
cpu.m.set(Some(next));
cpu.sp.set(next.bottom());
cpu.counters.handoffs.add_one();
if cpu.slices.attention.has(Attention::TRACED | Attention::SYSTEM) {
    handed_over(cpu, g, own, next);
}
g.enter_call(arch::cpu_index());
