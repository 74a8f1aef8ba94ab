package diskusage

import (
	"time"
)

// known is the state that is kept between requests.
type known struct {
	pods       []podState
	trees      map[Place]*tree
	systems    map[string]*system // by mount point
	node       *system
	image      image
	unfinished *tree // the tree with an unfinished walk, or nil
}

// podState is the state of a pod's places.
type podState struct {
	uid, namespace string
	volumes        []volumeState
	containers     []containerState
	other          []measured
}

type volumeState struct {
	name, claim string
	ephemeral   bool
	measured
}

type containerState struct {
	name         string
	rootfs, logs measured
}

// measured is a place: a tree on a file system, or, if tree is nil, the whole file
// system.
type measured struct {
	tree   *tree
	system *system
}

// system is a file system.
type system struct {
	path  string
	local bool
	fsInfo
}

// tree is a directory or file on a file system that it shares with others.
type tree struct {
	place     Place
	system    *system
	hasMounts bool // there are mounts below it

	at     time.Time // of usage; zero means never
	usage  Usage
	big    bool // has more entries than Config.share
	logged bool // the last error was logged
	walk   *Walk
	now    time.Time // of walk's last step
}

// best returns the best known usage of a tree and its time: that of the last complete
// walk, or of an unfinished one if that has found more.
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
