// Package round is what the bare client on a board reports of its pods.
package round

import "time"

// Times are of pods that started at once and stopped at once, from the common
// start or stop.
type Times struct {
	Starts, Stops []time.Duration
}
