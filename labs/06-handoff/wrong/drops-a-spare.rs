// loses: spares
// A spare M that the CPU does not need is forgotten: each round of calls creates new ones.
// region: keep
match cpu.spare.get() {
    None => cpu.spare.set(Some(spare)),
    Some(_) => {}
}
