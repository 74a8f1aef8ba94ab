package main

// tuneMemory sets the garbage collector for a board, where a measurement
// shows a gain; GOGC and GOMEMLIMIT in the environment are for experiments.
// Go's defaults hold so far.
func tuneMemory() {}
