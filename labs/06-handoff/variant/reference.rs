// region: keep
if let Some(other) = cpu.spare.replace(Some(spare)) {
    other.put_spare();
}
