module runnext/bench

go 1.26
