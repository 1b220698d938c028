// loses: calls
// The M that comes back is still noted as away.
// region: mount
let (cpu, own) = (on.cpu(), g.kernel.m.get().expect("the G is in no call"));
let spare = cpu.m();
if cpu.slices.attention.has(Attention::TRACED | Attention::SYSTEM) {
    hooks::cpu_event(Kind::Mount, own.id() as u32);
    system::swap_rings(cpu, spare, own);
}
cpu.m.set(Some(own));
cpu.sp.set(own.bottom());
spare.set_state(MState::Spare);
keep(cpu, spare);
g.exit_call();
