// loses: budget
// Right, and slow: each M that is displaced goes to the common list, and the next one comes from there.
// region: keep
spare.put_spare();
if cpu.spare.get().is_none() {
    cpu.spare.set(M::take_spare());
}
