package pod

// ProbeResult is the result of the probes of one running container.
type ProbeResult struct {
	// Started means that the startup probe has succeeded, if there is one. For a sidecar
	// it lets the next init container start.
	Started, Ready bool
	// Failed is the kind of the probe for which the container has to be killed, Liveness
	// or Startup; empty means none.
	Failed string
	// Grace is the terminationGracePeriodSeconds of that probe; nil means the pod's.
	Grace *int64
}
