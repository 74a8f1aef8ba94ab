package diskusage

import (
	"time"
)

// known is what is kept between two requests.
type known struct {
	pods    []podState
	trees   map[Place]*tree
	systems map[string]*system // by where they are mounted
	node    *system
	image   image
	big     *tree // whose walk goes on
}

// podState is what is known of a pod's places.
type podState struct {
	uid, namespace string
	volumes        []volumeState
	containers     []containerState
	other          []counted
}

type volumeState struct {
	name, claim string
	ephemeral   bool
	counted
}

type containerState struct {
	name         string
	rootfs, logs counted
}

// counted is a place: a tree on a file system, or without one the whole.
type counted struct {
	tree   *tree
	system *system
}

// system is a file system.
type system struct {
	path  string
	local bool
	figures
}

// tree is a directory, or a file, on a file system that it shares.
type tree struct {
	place   Place
	system  *system
	careful bool // something is mounted in it

	at    time.Time // of usage; zero is never
	usage Usage
	big   bool // more than one turn's share of entries
	told  bool // what went wrong was logged
	walk  *Walk
	now   time.Time // of walk's last step
}

// best is what is known of a tree, and since when: the last whole walk's, or
// that of one that is not done where it has found more.
func (t *tree) best() (Usage, time.Time) {
	if t.walk == nil {
		return t.usage, t.at
	}
	part := t.walk.Usage()
	if part.Bytes <= t.usage.Bytes && part.Inodes <= t.usage.Inodes {
		return t.usage, t.at
	}
	return Usage{Bytes: max(part.Bytes, t.usage.Bytes), Inodes: max(part.Inodes, t.usage.Inodes)}, t.now
}
