// loses: chaos
// Gives each M that is displaced away: a call that comes back and waits again finds none that takes over.
// region: mount
let (cpu, own) = (on.cpu(), g.kernel.m.get().expect("the G is in no call"));
let spare = cpu.m();
if cpu.slices.attention.has(Attention::TRACED | Attention::SYSTEM) {
    hooks::cpu_event(Kind::Mount, own.id() as u32);
    system::swap_rings(cpu, spare, own);
}
own.set_state(MState::OnCpu);
cpu.m.set(Some(own));
cpu.sp.set(own.bottom());
spare.set_state(MState::Spare);
spare.put_spare();
g.exit_call();
