//! Starting the other CPUs: INIT, SIPI, SIPI, and a bound on every wait.
