package statusmanager

// The pure functions, exported for tests.
var (
	Merge      = merge
	Transition = transition
	Reference  = apiObjectReference
	MirrorOf   = newMirrorPod
)
