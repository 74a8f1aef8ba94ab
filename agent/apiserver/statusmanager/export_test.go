package statusmanager

// The pure parts, for the tests.
var (
	Merge      = merge
	Transition = transition
	Reference  = reference
	MirrorOf   = mirrorOf
)
