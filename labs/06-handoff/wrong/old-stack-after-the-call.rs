// loses: chaos
// After a call the CPU schedules on the stack of the spare M, which another call may be given.
// region: mount
let (cpu, own) = (on.cpu(), g.kernel.m.get().expect("the G is in no call"));
let spare = cpu.m();
if cpu.slices.attention.has(Attention::TRACED | Attention::SYSTEM) {
    hooks::cpu_event(Kind::Mount, own.id() as u32);
    system::swap_rings(cpu, spare, own);
}
own.set_state(MState::OnCpu);
cpu.m.set(Some(own));
spare.set_state(MState::Spare);
keep(cpu, spare);
g.exit_call();
