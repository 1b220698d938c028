// loses: races
// Readies the G after the lock is released: by then it may be in another wait, which ends early.
// region: ready
let waiter = self.edge.lock().ready();
wake(waiter);
