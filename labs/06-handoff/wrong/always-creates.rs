// loses: spares
// Creates an M for each call, and never looks at the list of spare ones.
// region: find_spare
let mut found: Result<&'static M, BlockingError> = Err(BlockingError::NoMemory);
if found.is_err() {
    // With interrupts on: it allocates, and may wait. If many Ms are retired, it waits until
    // their stacks are closed, and takes one.
    on = on.open(|| {
        let may_reuse = M::are_many_retired() && wait_for_memory(1);
        let _ = may_reuse;
        found = M::create();
    });
}
let spare = found.inspect_err(|_| arch::irq::restore(IrqState::ON))?;
keep(on.cpu(), spare);
Ok(on)
